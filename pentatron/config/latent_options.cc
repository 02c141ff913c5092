// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

// Multi-latent attention (latent_attention.h).
namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding model() {
  return bind<&RunConfig::model, kField>();
}

constexpr OptionSpec kRows[] = {
    {.names = "--multi-latent-attention",
     .dest = "multi_latent_attention",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .help = "keys and values of all heads come from one low-rank latent (DeepSeek-V2); "
             "--qk-layernorm is then the norm of the latents",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; parity_test Parity.Holds; "
             "functional_test Options.MultiLatentAttention",
     .field = model<&ModelConfig::multi_latent_attention>()},
    {.names = "--q-lora-rank",
     .dest = "q_lora_rank",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .help = "channels of the latent that queries come from; default none, they come from the "
             "hidden channels",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; functional_test "
             "Options.MultiLatentAttention",
     .needs = kLatent,
     .field = model<&ModelConfig::q_lora_rank>()},
    {.names = "--kv-lora-rank",
     .dest = "kv_lora_rank",
     .kind = OptionKind::kInt,
     .default_repr = "32",
     .check = at_least<1>,
     .help = "channels of the latent that keys and values come from",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; functional_test "
             "Options.MultiLatentAttention",
     .needs = kLatent,
     .field = model<&ModelConfig::kv_lora_rank>()},
    {.names = "--qk-head-dim",
     .dest = "qk_head_dim",
     .kind = OptionKind::kInt,
     .default_repr = "128",
     .check = at_least<1>,
     .help = "channels of a query and key that are not rotated",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; functional_test "
             "Options.MultiLatentAttention",
     .needs = kLatent,
     .field = model<&ModelConfig::qk_head_dim>()},
    {.names = "--qk-pos-emb-head-dim",
     .dest = "qk_pos_emb_head_dim",
     .kind = OptionKind::kInt,
     .default_repr = "64",
     .check = at_least<1>,
     .help = "further channels of a query and key that are rotated; all heads share those of a key",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; functional_test "
             "Options.MultiLatentAttention",
     .needs = kLatent,
     .field = model<&ModelConfig::qk_pos_emb_head_dim>()},
    {.names = "--v-head-dim",
     .dest = "v_head_dim",
     .kind = OptionKind::kInt,
     .default_repr = "128",
     .check = at_least<1>,
     .help = "channels of a value",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; functional_test "
             "Options.MultiLatentAttention",
     .needs = kLatent,
     .field = model<&ModelConfig::v_head_dim>()},
    {.names = "--rope-type",
     .dest = "rope_type",
     .choices = "rope|yarn",
     .help = "rotation of --multi-latent-attention; default yarn, which --rotary-scaling-factor 1 "
             "makes the plain one",
     .test = "models_test ModelOption.EqualsThePlainWritingInFp64; functional_test "
             "Options.MultiLatentAttention",
     .needs = kLatent,
     .field = model<&ModelConfig::rope_type>()},
};

}  // namespace

std::span<const OptionSpec> latent_options() { return kRows; }

}  // namespace pentatron::config

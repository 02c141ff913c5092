// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding model() {
  return bind<&RunConfig::model, kField>();
}

constexpr Condition kAdapters{[](const RunConfig& c) { return c.model.lora_rank > 0; },
                              "there is no --lora-rank"};

constexpr OptionSpec kRows[] = {
    {.names = "--lora-rank",
     .dest = "lora_rank",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .help = "train low-rank adapters of this rank on frozen weights (LoRA)",
     .test = "parity_test ParityOfOne.AdaptersAloneAreTrained; functional_test Lora.Options",
     .field = model<&ModelConfig::lora_rank>(),
     .ours = true},
    {.names = "--lora-alpha",
     .dest = "lora_alpha",
     .kind = OptionKind::kFloat,
     .check = above_zero,
     .help = "adapters are multiplied by alpha / rank; default 2 * rank",
     .test = "models_test Adapters.EqualThePlainModel; functional_test Lora.Options",
     .needs = kAdapters,
     .field = model<&ModelConfig::lora_alpha>(),
     .ours = true},
    {.names = "--lora-dropout",
     .dest = "lora_dropout",
     .kind = OptionKind::kFloat,
     .default_repr = "0.0",
     .check = below_one,
     .help = "dropout on what adapters read",
     .test = "parity_test ParityOfOne.AdaptersAloneAreTrained; functional_test Lora.Options",
     .needs = kAdapters,
     .resume = Resume::kRun,
     .field = model<&ModelConfig::lora_dropout>(),
     .ours = true},
    {.names = "--lora-target-modules",
     .dest = "lora_target_modules",
     .nargs = '+',
     .default_repr = "[]",
     .help = "linear layers with adapters: q k v attention_gate o gate up down; default all that "
             "the model's blocks have",
     .test = "models_test Adapters.EqualThePlainModel; functional_test Lora.Options",
     .needs = kAdapters,
     .field = model<&ModelConfig::lora_target_modules>(),
     .ours = true},
    {.names = "--lora-rslora",
     .dest = "lora_rslora",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .help = "multiply adapters by alpha / sqrt(rank) instead",
     .test = "models_test Adapters.EqualThePlainModel; functional_test Lora.Options",
     .needs = kAdapters,
     .field = model<&ModelConfig::lora_rslora>(),
     .ours = true},
    {.names = "--lora-dora",
     .dest = "lora_dora",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .help = "adapters turn the weights' rows, whose lengths are trained by themselves (DoRA)",
     .test = "parity_test ParityOfOne.AdaptersAloneAreTrained; functional_test Lora.Options",
     .needs = kAdapters,
     .field = model<&ModelConfig::lora_dora>(),
     .ours = true},
    {.names = "--lora-load",
     .dest = "lora_load",
     .check = not_empty,
     .topic = Topic::kCheckpoint,
     .help = "start from the adapter in this folder (adapter_config.json, "
             "adapter_model.safetensors of PEFT), which also gives rank, alpha and modules",
     .test = "functional_test Lora.LoadsAnAdapter",
     .needs = kLoads,
     .field = bind<&RunConfig::checkpoint, &CheckpointConfig::lora_load>(),
     .ours = true},
};

}  // namespace

std::span<const OptionSpec> adapter_options() { return kRows; }

}  // namespace pentatron::config

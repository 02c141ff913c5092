// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

// Maximal update parametrisation (mup.h).
namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding model() {
  return bind<&RunConfig::model, kField>();
}

constexpr OptionSpec kRows[] = {
    {.names = "--use-mup",
     .dest = "use_mup",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .help =
         "maximal update parametrisation: initial values, rates and scales follow the width, so "
         "that a rate found for a narrow model serves a wide one",
     .test = "optimizer_test WidthScaling.IsMegatronsTable; training_test "
             "Mup.ActivationsKeepTheirSize; parity_test Parity.Holds; functional_test Options.Mup",
     .field = model<&ModelConfig::use_mup>()},
    {.names = "--mup-base-hidden-size",
     .dest = "mup_base_hidden_size",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .help = "width of the model whose rates are given; default --hidden-size",
     .test = "config_test Mup.IsDerived; functional_test Options.Mup",
     .needs = kMup,
     .field = model<&ModelConfig::mup_base_hidden_size>()},
    {.names = "--mup-width-mult",
     .dest = "mup_width_mult",
     .kind = OptionKind::kFloat,
     .default_repr = "1.0",
     .check = above_zero,
     .help = "--hidden-size / --mup-base-hidden-size, which it must be where it is given",
     .test = "config_test Mup.IsDerived; functional_test Options.Mup",
     .needs = kMup,
     .field = model<&ModelConfig::mup_width_mult>()},
    {.names = "--mup-embedding-mult",
     .dest = "mup_embedding_mult",
     .kind = OptionKind::kFloat,
     .default_repr = "1.0",
     .check = above_zero,
     .help = "the embeddings' output, positions included, is multiplied by this",
     .test = "models_test Mup.MultipliersAreInTheModel; functional_test Options.Mup",
     .needs = kMup,
     .field = model<&ModelConfig::mup_embedding_mult>()},
    {.names = "--mup-output-mult",
     .dest = "mup_output_mult",
     .kind = OptionKind::kFloat,
     .default_repr = "1.0",
     .check = above_zero,
     .help = "logits of the vocabulary are multiplied by this; 1: by 1 / the width's factor",
     .test = "models_test Mup.MultipliersAreInTheModel; functional_test Options.Mup",
     .needs = kMup,
     .field = model<&ModelConfig::mup_output_mult>()},
    {.names = "--mup-base-head-dim",
     .dest = "mup_base_head_dim",
     .kind = OptionKind::kFloat,
     .check = above_zero,
     .help = "scores are multiplied by its root too: with the base's --kv-channels they are the "
             "base's own",
     .test = "config_test Mup.IsDerived; functional_test Options.Mup",
     .needs = kMupScalesScores,
     .field = model<&ModelConfig::mup_base_head_dim>()},
    {.names = "--mup-attn-scale-power",
     .dest = "mup_attn_scale_power",
     .kind = OptionKind::kFloat,
     .default_repr = "1.0",
     .check = at_least<0>,
     .help = "scores are divided by --kv-channels to this power; 0.5 is the usual scale",
     .test = "config_test Mup.IsDerived; functional_test Options.Mup",
     .needs = kMupScalesScores,
     .field = model<&ModelConfig::mup_attn_scale_power>()},
};

}  // namespace

std::span<const OptionSpec> mup_options() { return kRows; }

}  // namespace pentatron::config

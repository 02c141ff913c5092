// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

// Products of linear layers in fp8, and the dtype of logits.
namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding model() {
  return bind<&RunConfig::model, kField>();
}

constexpr Condition kFp8{[](const RunConfig& c) { return !c.model.fp8.empty(); },
                         "there is no --fp8-format"};
constexpr Condition kDelayed{
    [](const RunConfig& c) { return !c.model.fp8.empty() && c.model.fp8_recipe == "delayed"; },
    "it belongs to --fp8-format with --fp8-recipe delayed"};
constexpr Condition kEdgesInBf16{
    [](const RunConfig& c) { return !c.model.fp8.empty() && c.model.first_last_layers_bf16; },
    "it belongs to --fp8-format with --first-last-layers-bf16"};

constexpr OptionSpec kRows[] = {
    {.names = "--output-logit-dtype",
     .dest = "logit_dtype",
     .choices = "bf16|fp32",
     .topic = Topic::kPrecision,
     .help = "dtype of the logits that the loss is made from; default: that of the activations",
     .test = "functional_test Options.OutputLogitDtype",
     .needs = kSixteenBit,
     .field = model<&ModelConfig::logit_dtype>()},
    {.names = "--fp8-format",
     .dest = "fp8",
     .choices = "e4m3|hybrid",
     .topic = Topic::kPrecision,
     .help = "products of the layers' linear maps in fp8, with --bf16: all e4m3, or hybrid with "
             "gradients of outputs as e5m2",
     .test = "ops_test Fp8Linear.MakesWeightGradientsInFp8; functional_test Options.Fp8",
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8>()},
    {.names = "--fp8-recipe",
     .dest = "fp8_recipe",
     .default_repr = "'delayed'",
     .choices = "tensorwise|delayed|mxfp8|blockwise|custom",
     .supported = "tensorwise|delayed|blockwise",
     .topic = Topic::kPrecision,
     .help = "scales of fp8 tensors: tensorwise by their own largest value, delayed by that of "
             "earlier steps (--fp8-amax-history-len), blockwise by that of each 128 values of a "
             "row, of weights 128 x 128 (powers of two)",
     .reason = "mxfp8 needs a Blackwell GPU, custom is Python code",
     .test = "ops_test Fp8Linear.Blockwise; training_test Fp8Training.FollowsBf16InEveryLayout; "
             "functional_test Options.Fp8",
     .needs = kFp8,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8_recipe>()},
    {.names = "--fp8-margin",
     .dest = "fp8_margin",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = at_least<0>,
     .topic = Topic::kPrecision,
     .help = "scales are larger by 2 to this power, so that values may grow by it unclipped",
     .test = "training_test Fp8Training.HistoryOfLargestValues",
     .needs = kDelayed,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8_margin>()},
    {.names = "--fp8-amax-history-len",
     .dest = "fp8_amax_history_len",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kPrecision,
     .help = "steps whose largest values are remembered",
     .test = "training_test Fp8Training.HistoryOfLargestValues",
     .needs = kDelayed,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8_amax_history_len>()},
    {.names = "--fp8-amax-compute-algo",
     .dest = "fp8_amax_compute_algo",
     .default_repr = "'most_recent'",
     .choices = "most_recent|max",
     .topic = Topic::kPrecision,
     .help = "which of the remembered values counts",
     .test = "training_test Fp8Training.HistoryOfLargestValues",
     .needs = kDelayed,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8_amax_compute_algo>()},
    {.names = "--no-fp8-wgrad --disable-fp8-wgrad",
     .dest = "fp8_wgrad",
     .kind = OptionKind::kSwitchOff,
     .default_repr = "True",
     .topic = Topic::kPrecision,
     .help = "gradients of weights in bf16",
     .test = "functional_test Options.Fp8",
     .needs = kFp8,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8_wgrad>()},
    {.names = "--fp8-output-proj",
     .dest = "fp8_output_proj",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kPrecision,
     .help = "the output layer in fp8 too",
     .test = "functional_test Options.Fp8",
     .needs = kFp8,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::fp8_output_proj>()},
    {.names = "--first-last-layers-bf16",
     .dest = "first_last_layers_bf16",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kPrecision,
     .help = "the first and last layers stay in bf16",
     .test = "functional_test Options.Fp8",
     .needs = kFp8,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::first_last_layers_bf16>()},
    {.names = "--num-layers-at-start-in-bf16",
     .dest = "num_layers_at_start_in_bf16",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<0>,
     .topic = Topic::kPrecision,
     .help = "first layers that stay in bf16",
     .test = "functional_test Options.Fp8",
     .needs = kEdgesInBf16,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::num_layers_at_start_in_bf16>()},
    {.names = "--num-layers-at-end-in-bf16",
     .dest = "num_layers_at_end_in_bf16",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<0>,
     .topic = Topic::kPrecision,
     .help = "last layers that stay in bf16",
     .test = "functional_test Options.Fp8",
     .needs = kEdgesInBf16,
     .resume = Resume::kNumerics,
     .field = model<&ModelConfig::num_layers_at_end_in_bf16>()},
};

}  // namespace

std::span<const OptionSpec> fp8_options() { return kRows; }

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/effects.h"

namespace pentatron::config {
namespace {

// A switch that says what holds anyway asks for nothing.
bool is_default_switch(const OptionSpec& spec, const RunConfig& config) {
  return is_switch(spec.kind) && spec.field.get(config) == spec.field.get(RunConfig{});
}

}  // namespace

std::vector<OptionNote> values_without_effect(const RunConfig& config, const Origins& origins) {
  std::vector<OptionNote> notes;
  for (const OptionSpec* spec : all_options()) {
    if (spec->needs.holds == nullptr || !set_by_user(origins, spec->dest)) continue;
    if (spec->needs.holds(config) || is_default_switch(*spec, config)) continue;
    const std::string_view name = split_words(spec->names, ' ').front();
    notes.push_back({std::string(name), std::string(spec->needs.otherwise)});
  }
  return notes;
}

void check_data_sources(const RunConfig& config, const Origins& origins, Problems& problems) {
  if (!config.data.mock_data) return;
  constexpr std::pair<std::string_view, std::string_view> kSources[] = {
      {"--data-path", "data_path"},
      {"--data-args-path", "data_args_path"},
      {"--per-split-data-args-path", "per_split_data_args_path"},
      {"--train-data-path", "train_data_path"},
      {"--valid-data-path", "valid_data_path"},
      {"--test-data-path", "test_data_path"}};
  for (const auto& [option, dest] : kSources) {
    if (!set_by_user(origins, dest)) continue;
    problems.add(
        fmt::format("{} and --mock-data exclude each other: mock data reads no files; give one",
                    option),
        dest);
  }
}

void check_wide_gradients(const RunConfig& config, const std::vector<OptionNote>& always_so,
                          Problems& problems) {
  const OptimizerConfig& optimizer = config.optimizer;
  const bool reduces = config.parallel.grad_reduce_in_bf16;
  const bool accumulates =
      optimizer.use_precision_aware_optimizer && optimizer.main_grads_dtype == "bf16";
  if (!reduces && !accumulates) return;
  for (const OptionNote& note : always_so) {
    if (note.spelled != "--accumulate-allreduce-grads-in-fp32" &&
        note.spelled != "--ddp-param-name-patterns-for-fp32-local-accumulation") {
      continue;
    }
    problems.add(fmt::format("{} asks for fp32 gradients, {} for bf16: drop one", note.spelled,
                             reduces ? "--grad-reduce-in-bf16" : "--main-grads-dtype bf16"));
  }
}

}  // namespace pentatron::config

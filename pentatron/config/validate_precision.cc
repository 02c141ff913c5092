// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_precision.h"

#include <algorithm>

#include "pentatron/base/format.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kChannels = 16;

void check_multiple(std::int64_t channels, std::string_view what, std::int64_t tp,
                    std::string_view option, Problems& problems) {
  if (channels % kChannels == 0) return;
  problems.add(
      fmt::format("--fp8-format multiplies by {} channels at a time, and {} are {} with "
                  "--tensor-model-parallel-size {}: change {}",
                  kChannels, what, channels, tp, option));
}

}  // namespace

void check_fp8(const RunConfig& config, Problems& problems) {
  const ModelConfig& model = config.model;
  if (model.fp8.empty()) return;
  if (config.training.precision != "bf16") {
    problems.add(
        fmt::format("--fp8-format {} needs --bf16, not {}", model.fp8, config.training.precision));
  }
  const std::int64_t tp = std::max<std::int64_t>(1, config.parallel.tensor_model_parallel_size);
  const std::int64_t groups = std::max<std::int64_t>(1, model.num_query_groups / tp);
  const std::int64_t heads = model.num_attention_heads / tp;
  check_multiple(model.hidden_size, "the hidden channels", tp, "--hidden-size", problems);
  check_multiple(model.ffn_hidden_size / tp, "a rank's feed-forward channels", tp,
                 "--ffn-hidden-size", problems);
  check_multiple(heads * model.kv_channels, "a rank's query channels", tp, "--kv-channels",
                 problems);
  check_multiple((heads + 2 * groups) * model.kv_channels, "a rank's query, key and value channels",
                 tp, "--kv-channels", problems);
}

}  // namespace pentatron::config

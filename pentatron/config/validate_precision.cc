// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_precision.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/choices.h"

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
  if (precision(config.training) != Precision::kBf16) {
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

void check_fp8_vocabulary(const RunConfig& config) {
  const ModelConfig& model = config.model;
  if (model.fp8.empty() || !model.fp8_output_proj) return;
  const std::int64_t tp = std::max<std::int64_t>(1, config.parallel.tensor_model_parallel_size);
  const std::int64_t rows = model.padded_vocab_size / tp;
  PENTATRON_CHECK(rows % kChannels == 0, kConfig,
                  "--fp8-output-proj multiplies by {} rows of the vocabulary at a time, and a rank "
                  "has {} of {} with --tensor-model-parallel-size {}: change "
                  "--make-vocab-size-divisible-by or --padded-vocab-size",
                  kChannels, rows, model.padded_vocab_size, tp);
}

void check_optimizer_state(const RunConfig& config, Problems& problems) {
  const OptimizerConfig& optimizer = config.optimizer;
  const Precision run = precision(config.training);
  const bool aware = optimizer.use_precision_aware_optimizer;
  if (aware && optimizer.optimizer != "adam") {
    problems.add(fmt::format("--use-precision-aware-optimizer belongs to --optimizer adam, not {}",
                             optimizer.optimizer));
  }
  if (aware && run == Precision::kFp64) {
    problems.add("--use-precision-aware-optimizer narrows fp32, not the state of --fp64: drop one");
  }
  const auto of_bf16 = [&](std::string_view option, const std::string& value) {
    if (!aware || value != "bf16" || run == Precision::kBf16) return;
    problems.add(fmt::format("{} bf16 needs --bf16, not {}", option, config.training.precision));
  };
  of_bf16("--main-params-dtype", optimizer.main_params_dtype);
  of_bf16("--main-grads-dtype", optimizer.main_grads_dtype);
  const ParallelConfig& parallel = config.parallel;
  const bool aware_bf16 = aware && optimizer.main_grads_dtype == "bf16";
  const auto wide = [&](std::string_view option, const std::string& value) {
    if (!parallel.use_megatron_fsdp || value != "fp32") return;
    if (!parallel.grad_reduce_in_bf16 && !aware_bf16) return;
    problems.add(fmt::format("{} fp32 asks for fp32 gradients, {} for bf16: drop one", option,
                             aware_bf16 ? "--main-grads-dtype bf16" : "--grad-reduce-in-bf16"));
  };
  wide("--megatron-fsdp-main-grads-dtype", parallel.megatron_fsdp_main_grads_dtype);
  wide("--megatron-fsdp-grad-comm-dtype", parallel.megatron_fsdp_grad_comm_dtype);
  if (aware && optimizer.optimizer_cpu_offload) {
    for (const auto& [option, value] :
         {std::pair{"--exp-avg-dtype", optimizer.exp_avg_dtype},
          std::pair{"--exp-avg-sq-dtype", optimizer.exp_avg_sq_dtype}}) {
      if (value != "fp16" && value != "fp8") continue;
      problems.add(fmt::format(
          "{} {} shares its scales on the device, which --optimizer-cpu-offload leaves: take bf16",
          option, value));
    }
  }
  const bool unscaled = optimizer.optimizer == "lion" || optimizer.optimizer == "soap";
  if (config.model.use_mup && unscaled) {
    problems.add(
        fmt::format("--use-mup has no learning rates for --optimizer {}: take adam, sgd or muon",
                    optimizer.optimizer));
  }
  if (config.model.use_mup && config.model.lora_rank > 0 && optimizer.optimizer == "sgd") {
    problems.add(
        "--use-mup with --lora-rank and --optimizer sgd asks for two learning rates, of A / w and "
        "of B x w (w: the width's factor), and a step has one beside --lr: take adam or muon");
  }
  if (optimizer.optimizer == "soap" && config.training.cuda_graph_impl == "full_iteration") {
    problems.add(
        "--optimizer soap asks the host once a step, which --cuda-graph-impl full_iteration "
        "cannot record: drop one");
  }
}

}  // namespace pentatron::config

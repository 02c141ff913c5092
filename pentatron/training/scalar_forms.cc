// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/scalar_forms.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace pentatron::training {
namespace {

struct Row {
  std::string_view name;
  std::string_view line = {};
  std::string_view metrics = {};
  std::string_view event = {};
  bool by_samples = true;
};

constexpr std::string_view kScientific = "{:.6E}";
constexpr std::string_view kTenths = "{:.1f}";
constexpr std::string_view kThousandths = "{:.3f}";

// In the order of Megatron's line; what is not in the line stands below.
constexpr std::array kRows{
    Row{.name = "consumed samples", .line = "{:12.0f}", .metrics = "consumed_samples"},
    Row{.name = "skipped samples", .line = "{:12.0f}", .event = "skipped-train-samples"},
    Row{.name = "elapsed time per iteration (ms)", .line = kTenths},
    Row{.name = "throughput per GPU (TFLOP/s/GPU)",
        .line = kTenths,
        .event = "throughput",
        .by_samples = false},
    Row{.name = "energy per GPU (J/iter/GPU)",
        .line = kTenths,
        .metrics = "joules_per_gpu",
        .event = "iter-energy/gpu",
        .by_samples = false},
    Row{.name = "power per GPU (W/GPU)",
        .line = kTenths,
        .metrics = "watts_per_gpu",
        .event = "power/gpu",
        .by_samples = false},
    Row{.name = "learning rate",
        .line = kScientific,
        .metrics = "learning_rate",
        .event = "learning-rate"},
    Row{.name = "global batch size",
        .line = "{:5.0f}",
        .metrics = "global_batch_size",
        .event = "batch-size"},
    Row{.name = "lm loss", .line = kScientific, .metrics = "lm_loss", .event = "lm loss"},
    Row{.name = "loss scale", .line = kTenths, .metrics = "loss_scale", .event = "loss-scale"},
    Row{.name = "grad norm", .line = kThousandths, .metrics = "grad_norm", .event = "grad-norm"},
    Row{.name = "num zeros", .line = "{:.0f}", .metrics = "num_zeros", .event = "num-zeros"},
    Row{.name = "params norm",
        .line = kThousandths,
        .metrics = "params_norm",
        .event = "params-norm"},
    Row{.name = "max attention logit",
        .line = kThousandths,
        .metrics = "max_attention_logit",
        .event = "max_attention_logit",
        .by_samples = false},
    Row{.name = "number of skipped iterations", .line = "{:3.0f}"},
    Row{.name = "number of nan iterations", .line = "{:3.0f}"},

    Row{.name = "lm loss count", .metrics = "valid_tokens"},
    Row{.name = "applied learning rate", .metrics = "applied_learning_rate"},
    Row{.name = "applied loss scale", .metrics = "applied_loss_scale"},
    Row{.name = "weight decay", .metrics = "weight_decay"},
    Row{.name = "skipped", .metrics = "skipped"},
    Row{.name = "seconds", .metrics = "seconds"},
    Row{.name = "data wait", .metrics = "data_wait_seconds"},
    Row{.name = "host", .metrics = "host_seconds"},
    Row{.name = "tokens per second", .metrics = "tokens_per_second"},
    Row{.name = "tflops per gpu", .metrics = "tflops_per_gpu"},
    Row{.name = "memory allocated", .metrics = "memory_allocated"},
    Row{.name = "memory reserved", .metrics = "memory_reserved"},
    Row{.name = "consumed tokens", .metrics = "consumed_tokens"},
    Row{.name = "time", .metrics = "time"},
    Row{.name = "cpu utilisation", .metrics = "cpu_utilisation"},
    Row{.name = "gpu utilisation", .metrics = "gpu_utilisation"},
    Row{.name = "iteration time", .event = "iteration-time", .by_samples = false},
    Row{.name = "world size", .event = "world-size"},
    Row{.name = "mem-reserved-bytes", .event = "mem-reserved-bytes", .by_samples = false},
    Row{.name = "mem-allocated-bytes", .event = "mem-allocated-bytes", .by_samples = false},
    Row{.name = "mem-max-allocated-bytes", .event = "mem-max-allocated-bytes", .by_samples = false},
    Row{.name = "mem-allocated-count", .event = "mem-allocated-count", .by_samples = false},
};

// Between two rows there is room for those that have none.
int place_of(std::string_view name) {
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == name; });
  return 2 * static_cast<int>(row - kRows.begin());
}

std::string key_of(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
}

}  // namespace

ScalarForm form_of(const nn::StepScalar& scalar) {
  for (const Row& row : kRows) {
    if (row.name != scalar.name) continue;
    return {.line = std::string(row.line),
            .metrics = std::string(row.metrics),
            .event = std::string(row.event),
            .by_samples = row.by_samples,
            .place = place_of(row.name)};
  }
  ScalarForm form{.line = {}, .metrics = key_of(scalar.name), .event = {}};
  if (scalar.kind == nn::ScalarKind::kCount) return form;
  const bool loss = scalar.kind == nn::ScalarKind::kLoss;
  form.line = loss ? kScientific : kThousandths;
  form.event = scalar.name;
  form.place = place_of(loss ? "lm loss" : "max attention logit") + 1;
  return form;
}

}  // namespace pentatron::training

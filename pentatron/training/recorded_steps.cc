// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/recorded_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "pentatron/base/log.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/tensor/attention_library.h"
#include "pentatron/tensor/batch_tensors.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron::training {
namespace {

// Shapes that are recorded at most: each holds a batch and a graph of some thousand nodes.
constexpr std::size_t kMaxShapes = 8;
// Documents of a micro-batch are padded to powers of two from here, so that few shapes serve all.
constexpr std::uint64_t kLeastSegments = 16;

// Whether no kernel is chosen or sized by the segments of packed documents: FlashAttention's take
// the boundaries from device memory; what it does not do goes segment by segment on the host.
bool reads_boundaries_on_device(const config::RunConfig& config) {
  const config::ModelConfig& m = config.model;
  const config::PositionKind positions = config::position_kind(m);
  return config::is_narrow(config::precision(config.training)) &&
         std::max(m.kv_channels, config::value_channels(m)) % tensor::kAttentionAlignment == 0 &&
         m.attention_dropout == 0 && !m.attn_logit_softcapping && m.window_size.empty() &&
         positions != config::PositionKind::kAlibi &&
         positions != config::PositionKind::kRelative && !config.logging.log_max_attention_logit &&
         !m.qk_clip && config.parallel.context_parallel_size == 1 &&
         m.heterogeneous_layers_config_path.empty() &&
         m.heterogeneous_layers_config_encoded_json.empty();
}

bool equal_segments(const std::vector<std::int64_t>& boundaries) {
  for (std::size_t i = 2; i < boundaries.size(); ++i) {
    if (boundaries[i] - boundaries[i - 1] != boundaries[1] - boundaries[0]) return false;
  }
  return true;
}

std::string sequence_key(const SequenceLayout& layout) {
  const std::vector<std::int64_t>& boundaries = layout.rows().boundaries;
  const AttentionSegments& plan = *layout.attention();
  std::string key = fmt::format("{} rows", layout.num_rows());
  const auto on_device = plan.q_boundaries.defined() ? plan.q_boundaries.numel() : 0;
  if (on_device > static_cast<std::int64_t>(boundaries.size())) {
    key += fmt::format(" in up to {} segments of up to {}", on_device - 1, plan.max_q_len);
  } else if (equal_segments(boundaries)) {
    key += fmt::format(" in {} equal segments", boundaries.size() - 1);
  } else {
    key += fmt::format(" from {}", fmt::join(boundaries, " "));
  }
  if (layout.cut() != nullptr) key += " of (" + sequence_key(layout.cut()->whole.layout) + ")";
  return key;
}

}  // namespace

std::string shape_key(const std::vector<Batch>& batches) {
  std::string key;
  for (const Batch& batch : batches) {
    for (const auto& [name, layout] : batch.sequences) {
      key += fmt::format("{}: {}; ", name, sequence_key(layout));
    }
    for (const auto& [name, values] : batch.fields) {
      key += fmt::format("{}: {}; ", name, values.defined() ? tensor::describe(values) : "none");
    }
    key += "\n";
  }
  return key;
}

RecordedSteps::RecordedSteps(const config::RunConfig& config, Device device)
    : device_(device),
      warm_up_steps_(config.training.cuda_graph_warmup_steps),
      pads_documents_(reads_boundaries_on_device(config)) {}

SegmentPadding RecordedSteps::padding(const Batch& batch) const {
  if (!pads_documents_ || batch.sequences.size() != 1) return {};
  const SequenceRows& rows = batch.sequences.begin()->second.rows();
  if (equal_segments(rows.boundaries)) return {};
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < rows.samples.size(); ++i) {
    longest = std::max(longest, rows.samples[i] - rows.samples[i - 1]);
  }
  const std::uint64_t segments = std::max(kLeastSegments, std::uint64_t{rows.boundaries.size()});
  return {.segments = static_cast<std::int64_t>(std::bit_ceil(segments)), .length = longest};
}

void RecordedSteps::record(Shape& shape, const std::vector<Batch>& batches, const Launch& launch) {
  shape.memory = batches;
  shape.graph->capture([&] { launch(shape.memory); }, first_);
  if (first_ == nullptr) first_ = shape.graph.get();
  ++num_recorded_;
  log::debug("recorded a step of shape {}", shape_key(batches));
}

bool RecordedSteps::run(const std::vector<Batch>& batches, const Launch& launch) {
  ++num_steps_;
  const std::string key = shape_key(batches);
  const auto found = shapes_.find(key);
  if (found == shapes_.end() && shapes_.size() == kMaxShapes) {
    launch(batches);
    return false;
  }
  Shape& shape = found == shapes_.end() ? shapes_[key] : found->second;
  // What a shape needs for the first time (plans of libraries, workspaces) is not made while it is
  // recorded.
  if (shape.graph == nullptr) shape.graph = std::make_unique<tensor::StepGraph>(device_);
  if (!shape.warm || num_steps_ <= warm_up_steps_) {
    shape.graph->warm_up([&] { launch(batches); });
    shape.warm = true;
    return false;
  }
  if (!shape.graph->captured()) {
    record(shape, batches, launch);
  } else {
    for (std::size_t i = 0; i < batches.size(); ++i) copy_tensors(shape.memory[i], batches[i]);
  }
  shape.graph->replay();
  return true;
}

}  // namespace pentatron::training

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/model_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/heterogeneous_layers.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/inference/forward_pass.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::inference {
namespace {

// The bytes of whichever members hold some, in order of rank.
std::string joined_bytes(comm::Group& group, const std::string& mine) {
  if (group.size() == 1) return mine;
  std::string all;
  for (const std::string& bytes : comm::all_gather_bytes(group, mine)) all += bytes;
  return all;
}

}  // namespace

ModelRunner::ModelRunner(const config::RunConfig& config, nn::LocalStages& stages,
                         comm::ParallelContext& context, const PrecisionPolicy& policy,
                         Device device)
    : config_(config), stages_(stages), context_(context), policy_(policy), device_(device) {}

std::int64_t ModelRunner::max_positions() const { return config_.model.max_position_embeddings; }

void ModelRunner::begin(std::int64_t max_tokens, bool use_cache) {
  caches_.clear();
  num_cached_ = 0;
  if (!use_cache || config_.parallel.sequence_parallel) return;
  const std::vector<config::StagePlan> plans =
      config::plan_pipeline(config_.model, config_.parallel);
  const std::vector<config::LayerShape> shapes = config::layer_shapes(config_.model);
  for (int chunk = 0; chunk < stages_.size(); ++chunk) {
    const auto stage =
        static_cast<std::size_t>(chunk * context_.size("pp") + context_.coordinate("pp"));
    const config::StagePlan& plan = plans.at(stage);
    std::vector<std::int64_t> heads;  // of each layer
    for (int layer = plan.first_layer; layer < plan.end_layer; ++layer) {
      const std::int64_t groups = shapes.at(static_cast<std::size_t>(layer)).num_query_groups;
      // Fewer key and value heads than ranks: each holds one.
      heads.push_back(groups == 0 ? 0 : std::max<std::int64_t>(1, groups / context_.size("tp")));
    }
    // Of latent attention the keys and values of its heads.
    const nn::KvCache::HeadDims dims{.keys = config_.model.kv_channels,
                                     .values = config::value_channels(config_.model)};
    caches_.push_back(
        std::make_unique<nn::KvCache>(heads, max_tokens, dims, policy_.compute, device_));
  }
}

// With LongRoPE a text beyond the original length has other angles from its first token on.
void ModelRunner::forget_short_angles(std::size_t num_tokens) {
  const config::ModelConfig& model = config_.model;
  const auto short_length =
      static_cast<std::size_t>(model.longrope_original_max_position_embeddings);
  if (config::position_kind(model) != config::PositionKind::kLongRope ||
      num_cached_ > short_length || num_tokens <= short_length) {
    return;
  }
  for (const auto& cache : caches_) cache->clear();
  num_cached_ = 0;
}

Batch ModelRunner::batch_of(const std::vector<std::int32_t>& tokens, std::int64_t begin) const {
  std::vector<std::int64_t> ids(tokens.begin() + begin, tokens.end());
  // Rows that ranks can share evenly; nothing before them sees what is behind.
  const std::int64_t multiple = config_.parallel.sequence_parallel ? context_.size("tp") : 1;
  while (static_cast<std::int64_t>(ids.size()) % multiple != 0) ids.push_back(0);
  const auto num_rows = static_cast<std::int64_t>(ids.size());
  const auto num_tokens = static_cast<std::int64_t>(tokens.size()) - begin;
  SequenceRows rows{.boundaries = {0, num_rows}};
  rows.positions.resize(ids.size());
  std::iota(rows.positions.begin(), rows.positions.end(), begin);
  for (std::int64_t& position : rows.positions) {
    // Padding does not make the text longer.
    position = std::min({position, max_positions() - 1, begin + num_tokens - 1});
  }
  rows.token_index = rows.positions;
  Batch batch;
  batch.sequences.emplace(Batch::kText, std::move(rows));
  batch.fields.emplace("tokens", tensor::from_vector(ids));
  batch.fields.emplace("labels", tensor::zeros({num_rows}, DType::Long));
  batch.fields.emplace("loss_mask", tensor::zeros({num_rows}, policy_.statistics));
  return to_device(std::move(batch), device_);
}

std::vector<float> ModelRunner::next_logits(const std::vector<std::int32_t>& tokens) {
  PENTATRON_CHECK(tokens.size() > num_cached_, kInternal, "no token is new among {}",
                  tokens.size());
  forget_short_angles(tokens.size());
  const std::size_t begin = caches_.empty() ? 0 : std::exchange(num_cached_, tokens.size());
  const std::vector<Batch> batches{batch_of(tokens, static_cast<std::int64_t>(begin))};
  const auto last_row = static_cast<std::int64_t>(tokens.size() - begin) - 1;
  nn::Phase phase = nn::Phase::kEvaluate;
  if (!caches_.empty()) phase = begin == 0 ? nn::Phase::kPrefill : nn::Phase::kDecode;
  Tensor row_v;
  forward_pass(stages_, context_, caches_, batches,
               {.policy = policy_,
                .device = device_,
                .phase = phase,
                .output = nn::StageOutput::kLogits,
                .on_output = [&](int, int, const nn::Bundle& output) {
                  row_v = output.at(0).tensor[last_row];
                }});
  return gather(row_v);
}

std::vector<float> ModelRunner::gather(const Tensor& row_v) {
  std::string bytes;
  if (row_v.defined()) {
    const tensor::NoGrad no_grad;
    const Tensor host = row_v.cpu().to(DType::Float).contiguous();
    bytes.assign(reinterpret_cast<const char*>(host.const_data_ptr<float>()),
                 static_cast<std::size_t>(host.numel()) * sizeof(float));
  }
  // Vocabulary rows stand in the order of the tensor ranks; one pipeline rank has them.
  bytes = joined_bytes(context_.group("pp"), joined_bytes(context_.group("tp"), bytes));
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), bytes.size());
  return logits;
}

}  // namespace pentatron::inference

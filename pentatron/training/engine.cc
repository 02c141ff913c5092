// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/engine.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/comm/group.h"
#include "pentatron/distributed/flat_buffer.h"
#include "pentatron/distributed/gradient_reducer.h"
#include "pentatron/models/registry.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

constexpr std::int64_t kDefaultBucketBytes = 40 << 20;

distributed::FlatBufferOptions buffer_options(std::int64_t reduction_size) {
  return {.reduction_size = reduction_size, .bucket_bytes = kDefaultBucketBytes};
}

}  // namespace

struct Engine::State {
  std::unique_ptr<distributed::BufferAllocator> allocator;
  std::unique_ptr<distributed::FlatBuffer> buffer;
  WeightGradQueue weight_grads;  // outlives the reducer, which listens to it
  std::unique_ptr<distributed::GradientReducer> reducer;
  std::string schedule = "1f1b";
};

Engine::Engine(const config::RunConfig& config, comm::ParallelContext& context)
    : config_(config),
      context_(context),
      policy_(precision_policy(config.training.precision)),
      state_(std::make_unique<State>()) {
  const parallel_layers::LeafContext leaf_context = parallel_layers::make_leaf_context(
      context, config.model.num_query_groups, config.parallel.sequence_parallel, policy_);
  stage_ = models::make_stage("gpt", config.model, leaf_context,
                              {.rank = context.coordinate("pp"), .size = context.size("pp")});
  for (nn::Parameter* parameter : stage_->parameters()) parameter->initialise(config.model.seed);
  comm::Group& replicas = context.group({"dp", "cp"});
  state_->allocator = distributed::make_default_allocator();
  state_->buffer = std::make_unique<distributed::FlatBuffer>(
      stage_->parameters_by_layer(), buffer_options(replicas.size()), *state_->allocator, policy_,
      Device("cpu"));
  const auto [first_layer, end_layer] = stage_->layer_range();
  const bool sharded = config.parallel.use_distributed_optimizer;
  state_->reducer = std::make_unique<distributed::GradientReducer>(
      *state_->buffer, context, sharded, policy_, first_layer, end_layer);
  state_->reducer->listen_to(state_->weight_grads);
  optimizer_ = std::make_unique<optimizer::Optimizer>(*state_->buffer, context, config.optimizer,
                                                      policy_, sharded);
}

Engine::~Engine() = default;

void Engine::set_schedule(std::string name) {
  PENTATRON_CHECK(name == "1f1b" || name == "split_weight", kInternal, "no schedule named '{}'",
                  name);
  state_->schedule = std::move(name);
}

double Engine::global_valid_count(const std::vector<BatchMeta>& micro_batches) {
  double count = 0;
  for (const BatchMeta& batch : micro_batches)
    count += batch.loss_mask.sum(DType::Double).item<double>();
  if (planted_fault("local_valid_count")) return count;
  return comm::all_reduce_value(context_.group({"dp", "cp"}), count);
}

StepResult Engine::forward_backward(const std::vector<BatchMeta>& micro_batches) {
  PENTATRON_CHECK(!micro_batches.empty(), kInternal, "a step needs at least one micro-batch");
  StepResult result;
  result.num_valid_tokens = global_valid_count(micro_batches);
  const double inverse = result.num_valid_tokens > 0 ? 1.0 / result.num_valid_tokens : 0.0;
  const Tensor seed = tensor::scalar(inverse, policy_.loss);

  const pipeline_parallel::ScheduleShape shape{
      .num_stages = static_cast<int>(context_.size("pp")),
      .num_micro_batches = static_cast<int>(micro_batches.size())};
  const bool split = state_->schedule == "split_weight";
  const auto lists = split ? pipeline_parallel::one_forward_one_backward_split_weight(shape)
                           : pipeline_parallel::one_forward_one_backward(shape);
  state_->weight_grads.set_postpone(split);
  state_->reducer->begin_step();
  const pipeline_parallel::StepLosses losses = pipeline_parallel::run_schedule(
      lists.at(static_cast<std::size_t>(context_.coordinate("pp"))), *stage_, context_.group("pp"),
      micro_batches, seed,
      {.policy = policy_,
       .seed = config_.model.seed,
       .phase = nn::Phase::kTrain,
       .layer_events = state_->reducer.get(),
       .weight_grads = &state_->weight_grads,
       .on_last_micro_batch = [this] { state_->reducer->begin_last_micro_batch(); }});
  state_->weight_grads.drain();
  state_->reducer->finish_step();

  const double local = losses.loss_sum.defined() ? losses.loss_sum.item<double>() : 0.0;
  const double of_replicas = comm::all_reduce_value(context_.group({"dp", "cp"}), local);
  result.loss = comm::all_reduce_value(context_.group("pp"), of_replicas) * inverse;
  result.micro_losses = losses.per_micro_batch;
  result.finite = std::isfinite(result.loss);
  return result;
}

StepResult Engine::train_step(const std::vector<BatchMeta>& micro_batches, double lr,
                              double weight_decay) {
  StepResult result = forward_backward(micro_batches);
  if (!result.finite && config_.training.check_for_nan_in_loss_and_grad) {
    result.skipped = true;
    return result;
  }
  const optimizer::OptimizerStepResult update = optimizer_->step(lr, weight_decay);
  result.grad_norm = update.grad_norm;
  result.skipped = update.skipped;
  result.finite = result.finite && std::isfinite(update.grad_norm);
  return result;
}

EvaluationResult Engine::evaluate(const std::vector<BatchMeta>& micro_batches) {
  EvaluationResult result;
  result.num_valid_tokens = global_valid_count(micro_batches);
  const pipeline_parallel::ScheduleShape shape{
      .num_stages = static_cast<int>(context_.size("pp")),
      .num_micro_batches = static_cast<int>(micro_batches.size())};
  const auto lists = pipeline_parallel::forward_only(shape);
  const tensor::NoGrad no_grad;
  const pipeline_parallel::StepLosses losses = pipeline_parallel::run_schedule(
      lists.at(static_cast<std::size_t>(context_.coordinate("pp"))), *stage_, context_.group("pp"),
      micro_batches, Tensor(),
      {.policy = policy_, .seed = config_.model.seed, .phase = nn::Phase::kEvaluate});
  const double local = losses.loss_sum.defined() ? losses.loss_sum.item<double>() : 0.0;
  const double of_replicas = comm::all_reduce_value(context_.group({"dp", "cp"}), local);
  result.loss_sum = comm::all_reduce_value(context_.group("pp"), of_replicas);
  return result;
}

std::int64_t Engine::num_local_parameters() {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : stage_->parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) count += part.box.num_elements();
  }
  return count;
}

std::map<std::string, Tensor> Engine::gather_parameters() { return gather_parts(false); }
std::map<std::string, Tensor> Engine::gather_gradients() { return gather_parts(true); }

std::map<std::string, Tensor> Engine::gather_parts(bool gradients) {
  distributed::FlatBuffer& buffer = *state_->buffer;
  comm::Group& replicas = context_.group({"dp", "cp"});
  const bool sharded = gradients && config_.parallel.use_distributed_optimizer;
  const Tensor source = gradients ? buffer.grads() : buffer.parameters();
  // What this rank contributes: for each part the row-major values of its box, fp64.
  std::map<const nn::ShardPart*, Tensor> boxes;
  for (std::size_t bucket = 0; bucket < buffer.buckets().size(); ++bucket) {
    std::pair<std::int64_t, std::int64_t> range{buffer.buckets()[bucket].begin,
                                                buffer.buckets()[bucket].end};
    if (sharded) {
      range = buffer.shard_range(bucket, replicas.rank());
    } else if (replicas.rank() != 0) {
      continue;
    }
    for (const distributed::FlatSegment& segment :
         distributed::segments_in(buffer, range.first, range.second)) {
      if (segment.part->replica != 0) continue;
      Tensor& box = boxes[segment.part];
      if (!box.defined()) box = tensor::zeros({segment.part->box.num_elements()}, DType::Double);
      box.narrow(0, segment.box_begin, segment.length)
          .copy_(source.narrow(0, segment.flat_begin, segment.length));
    }
  }
  // Every rank learns all names and shapes, then boxes are summed into whole tensors.
  nlohmann::json mine = nlohmann::json::object();
  for (const nn::Parameter* parameter : stage_->parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) mine[part.name] = part.logical_shape;
  }
  std::map<std::string, Shape> shapes;
  for (const std::string& text : comm::all_gather_bytes(context_.world(), mine.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    for (const auto& [name, shape] : theirs.items()) shapes[name] = shape.get<Shape>();
  }
  std::map<std::string, Tensor> whole;
  for (const auto& [name, shape] : shapes) whole[name] = tensor::zeros(shape, DType::Double);
  for (const auto& [part, values] : boxes) {
    Tensor target = whole.at(part->name);
    for (std::size_t dim = 0; dim < part->box.offset.size(); ++dim) {
      target =
          target.narrow(static_cast<std::int64_t>(dim), part->box.offset[dim], part->box.size[dim]);
    }
    target.add_(values.view(part->box.size));
  }
  for (auto& [name, t] : whole) comm::all_reduce(context_.world(), t);
  return whole;
}

}  // namespace pentatron::training

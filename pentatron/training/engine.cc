// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/engine.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/config/choices.h"
#include "pentatron/models/registry.h"
#include "pentatron/nn/step_ledger.h"
#include "pentatron/ops/unit_event_fan_out.h"
#include "pentatron/parallel_layers/core_attention.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/pipeline_parallel/make_schedule.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"
#include "pentatron/training/adapters.h"
#include "pentatron/training/data.h"
#include "pentatron/training/decay_norms.h"
#include "pentatron/training/freeze.h"
#include "pentatron/training/grid_place.h"
#include "pentatron/training/make_ledger.h"
#include "pentatron/training/mean_weights.h"
#include "pentatron/training/qk_clip.h"
#include "pentatron/training/recorded_layers.h"
#include "pentatron/training/recorded_steps.h"
#include "pentatron/training/run_policy.h"
#include "pentatron/training/run_trace.h"
#include "pentatron/training/teacher.h"

namespace pentatron::training {
namespace {

// What is called "loss" where there are several.
constexpr const char* kMainLoss = "lm loss";
constexpr const char* kMainLossCount = "lm loss count";
constexpr const char* kGradNorm = "grad norm";
constexpr const char* kSkipped = "skipped";
constexpr const char* kNumZeros = "num zeros";

// What a step tells besides what its modules do.
std::vector<nn::LedgerEntry> step_results() {
  std::vector<nn::LedgerEntry> entries;
  for (const char* name : {kGradNorm, kNumZeros, kSkipped}) {
    entries.push_back({.name = name, .kind = nn::ScalarKind::kResult});
  }
  return entries;
}

// Numbers of modules that are kept only where an option asks for them.
std::vector<std::string> asked_for(const config::LoggingConfig& logging) {
  std::vector<std::string> names;
  if (logging.log_max_attention_logit) names.emplace_back(parallel_layers::kMaxAttentionLogit);
  return names;
}

// Takes the losses of the last stage by their names; all tensor-parallel ranks have them. What is
// told of the main loss is a mean over tokens, whatever mean is trained on.
pipeline_parallel::OnOutput losses_into(nn::StepLedger& ledger,
                                        const MeanWeights* means = nullptr) {
  return [&ledger, means](int, int micro_batch, const nn::Bundle& losses) {
    for (const nn::BundleItem& loss : losses) {
      const bool weighed = means != nullptr && loss.name == kMainLoss;
      ledger.add_sum(loss.name,
                     weighed ? means->without_weight(loss.tensor, micro_batch) : loss.tensor,
                     nn::Share::kTensorCopy);
    }
  };
}

optimizer::GridPlace place_on(comm::ParallelContext& context, comm::GridKind kind) {
  optimizer::GridPlace place = grid_place(context.place(), kind);
  place.context = &context;
  return place;
}

ContextPlace context_place(comm::ParallelContext& context) {
  ContextPlace place{
      .group = &context.group("cp"), .size = context.size("cp"), .rank = context.coordinate("cp")};
  if (place.size == 1 || context.size("cp_inner") == 1) return place;
  place.inner_size = context.size("cp_inner");
  place.inner_group = &context.group("cp_inner");
  place.outer_group = &context.group("cp_outer");
  return place;
}

// Every rank has the same stores: one of experts where any rank holds some.
std::vector<optimizer::GridPlace> grid_places(comm::ParallelContext& context,
                                              nn::LocalStages& stages) {
  std::vector<optimizer::GridPlace> places = {place_on(context, comm::GridKind::kDense)};
  if (!context.grids().expert) return places;
  bool experts = false;
  for (const nn::Parameter* parameter : stages.parameters()) {
    experts = experts || parameter->spec().parts.at(0).grid == "expert";
  }
  if (comm::all_reduce_value(context.world(), experts ? 1 : 0) > 0) {
    places.push_back(place_on(context, comm::GridKind::kExpert));
  }
  return places;
}

}  // namespace

struct Engine::State {
  ContextPlace place;            // among the ranks that share its micro-batches
  WeightGradQueue weight_grads;  // outlives the stores, which listen to it
  Timers* timers = nullptr;
  std::unique_ptr<UnitTrace> unit_trace;  // with a trace of the run
  ops::UnitEventFanOut events;
  // What changes from step to step, one after another in device memory, and views of each.
  Tensor inputs;
  Tensor lr;
  Tensor decoupled_lr;
  Tensor width_lr;
  double width_factor = 1;  // of width_lr where a step does not say it
  Tensor weight_decay;
  Tensor loss_scale;
  double written_scale = 1;  // that stands there
  bool updates = false;      // the step makes an update, which the loss scaler has not counted yet
  bool launched = false;
  // Of the step that was launched: the device may still be copying from them.
  std::vector<Batch> host_batches;
  std::map<int, pipeline_parallel::ActionList> training_lists;  // of this rank, by micro-batches
  std::unique_ptr<nn::StepLedger> ledger;      // what a step leaves on the device for read_step
  std::unique_ptr<nn::StepLedger> evaluation;  // likewise of an evaluation
  std::unique_ptr<RecordedSteps> recorded;     // null: steps are queued kernel by kernel
  std::unique_ptr<RecordedLayers> layers;      // null: and so are layers

  // Hears of the units of a training step.
  [[nodiscard]] ops::UnitEventSink* sink() {
    return layers != nullptr ? static_cast<ops::UnitEventSink*>(layers.get()) : &events;
  }
  void make_inputs(Device device) {
    inputs = tensor::zeros({5}, kAccumulationDType, device);
    lr = inputs.select(0, 0);
    decoupled_lr = inputs.select(0, 1);
    weight_decay = inputs.select(0, 2);
    loss_scale = inputs.select(0, 3);
    width_lr = inputs.select(0, 4);
  }
  void set_inputs(const StepInputs& values, double scale) {
    const std::vector<double> host{values.lr, values.decoupled_lr.value_or(values.lr),
                                   values.weight_decay, scale,
                                   values.width_lr.value_or(values.lr * width_factor)};
    inputs.copy_(tensor::from_vector(host));
    written_scale = scale;
  }
};

Engine::Engine(const config::RunConfig& config, comm::ParallelContext& context, Device device,
               const StageFactory& make_stage)
    : config_(config),
      context_(context),
      device_(device),
      policy_(run_policy(config)),
      state_(std::make_unique<State>()),
      loss_scaler_(config.optimizer, config::precision(config.training)) {
  const parallel_layers::LeafContext leaf_context = parallel_layers::make_leaf_context(
      context, config.parallel.sequence_parallel, policy_, device);
  const std::vector<config::StagePlan> plans = config::plan_pipeline(config.model, config.parallel);
  // Before memory is taken: a teacher that does not fit is refused at once.
  if (config::distils(config)) teacher_ = std::make_unique<Teacher>(config);
  for (auto stage = static_cast<std::size_t>(context.coordinate("pp")); stage < plans.size();
       stage += static_cast<std::size_t>(context.size("pp"))) {
    auto made = make_stage ? make_stage(leaf_context, plans[stage])
                           : models::make_stage(models::model_kind(config.model), config.model,
                                                leaf_context, plans[stage]);
    stages_.add(teacher_ ? teacher_->beside(std::move(made), context, leaf_context)
                         : std::move(made));
  }
  decay_qk_norms(config, stages_.parameters());
  freeze_parameters(config, stages_.parameters());
  if (config.model.lora_rank > 0) freeze_all_but_adapters(stages_.parameters());
  // Groups are made here, not inside the first step.
  static_cast<void>(context.second_group("pp"));
  if (config.parallel.dynamic_context_parallel) {
    dynamic_context_ = std::make_unique<DynamicContext>(config_, context);
  }
  state_->place = context_place(context);
  state_->make_inputs(device);
  state_->width_factor = optimizer::width_scaling(config.model, config.optimizer).lr_factor;
  state_->ledger = make_ledger(stages_, context, asked_for(config.logging), step_results(),
                               policy_.loss, device);
  state_->evaluation = make_ledger(stages_, context, {}, {}, policy_.loss, device);
  optimizer_ = std::make_unique<optimizer::ModelOptimizer>(
      stages_.units(), grid_places(context, stages_), config, policy_, device);
  optimizer_->listen_to(state_->weight_grads);
  state_->events.add(*optimizer_);
  const std::uint64_t seed = config.model.seed;
  for (nn::Parameter* parameter : stages_.parameters()) {
    if (!parameter->trainable()) parameter->initialise(seed);
  }
  optimizer_->fill([seed](nn::Parameter& parameter) { parameter.initialise(seed); });
  if (config.model.lora_dora) reset_magnitudes();
  const config::Recording recording = config::recording(config.training);
  if (recording == config::Recording::kFullIteration && !device.is_cpu()) {
    state_->recorded = std::make_unique<RecordedSteps>(config, device);
  }
  if (recording == config::Recording::kLocal) {
    state_->layers =
        std::make_unique<RecordedLayers>(config_, policy_, stages_, device, state_->events);
  }
}

void Engine::reset_magnitudes() {
  const auto lengths = row_lengths(stages_.parameters(), context_);
  optimizer_->fill([&lengths](nn::Parameter& parameter) {
    const auto found = lengths.find(&parameter);
    if (found != lengths.end()) parameter.data().copy_(found->second);
  });
}

Engine::~Engine() = default;

std::vector<Batch> Engine::on_device(const std::vector<Batch>& micro_batches) const {
  std::vector<Batch> batches;
  batches.reserve(micro_batches.size());
  const config::ModelConfig& m = config_.model;
  const bool shared = state_->place.size > 1 && dynamic_context_ == nullptr;
  for (const Batch& batch : micro_batches) {
    if (config::position_kind(m) != config::PositionKind::kNone)
      check_positions(batch, m.max_position_embeddings);
    const bool whole = batch.text().cut() == nullptr;
    const Batch mine = shared && whole ? cut_batch(batch, state_->place) : batch;
    batches.push_back(to_device(
        mine, device_,
        state_->recorded == nullptr ? SegmentPadding{} : state_->recorded->padding(mine)));
  }
  // Copies from pinned memory go on after this returns.
  if (!device_.is_cpu()) state_->host_batches = micro_batches;
  return batches;
}

void Engine::check_equal_counts(const std::vector<Batch>& micro_batches) {
  if (optimizer_->store(0).options().sharding < distributed::Sharding::kGradients) return;
  const auto count = static_cast<double>(micro_batches.size());
  const Tensor range = tensor::from_vector(std::vector<double>{count, -count});
  comm::all_reduce(context_.replicas(), range, comm::ReduceOp::kMax);
  const double most = range.const_data_ptr<double>()[0];
  const double least = -range.const_data_ptr<double>()[1];
  PENTATRON_CHECK(most == least, kConfig,
                  "data-parallel ranks have {} to {} micro-batches in a step; where gradients or "
                  "parameters are sharded all need as many: use --data-parallel-sharding-strategy "
                  "optim",
                  least, most);
}

void Engine::set_timers(Timers* timers) {
  state_->timers = timers;
  optimizer_->set_timers(timers);
  if (timers == nullptr || timers->trace() == nullptr || state_->unit_trace != nullptr) return;
  state_->unit_trace = std::make_unique<UnitTrace>(*timers->trace(), stages_.units());
  state_->events.add(*state_->unit_trace);
}

void Engine::begin_ledger(nn::StepLedger& ledger, const std::vector<Batch>& batches) {
  const tensor::NoGrad no_grad;
  ledger.begin(batches);
  comm::all_reduce(context_.replicas(), ledger.counts());
}

void Engine::reduce_ledger(nn::StepLedger& ledger) {
  const tensor::NoGrad no_grad;
  comm::all_reduce(context_.world(), ledger.sums());
  comm::all_reduce(context_.world(), ledger.maxima(), comm::ReduceOp::kMax);
}

void Engine::launch_forward_backward(std::vector<Batch> batches) {
  const TimedScope timed(state_->timers, "forward-backward", 1);
  nn::StepLedger& ledger = *state_->ledger;
  if (state_->layers != nullptr) state_->layers->begin_step(training_list(batches), batches);
  begin_ledger(ledger, batches);
  ledger.set_seeds(state_->loss_scale);
  std::optional<MeanWeights> means;
  if (config::loss_mean(config_.training) == config::LossMean::kMicroBatches) {
    means.emplace(batches, context_.replicas(), device_);
    means->apply(batches, policy_.statistics);
  }

  state_->weight_grads.set_last_micro_batch(static_cast<int>(batches.size()) - 1);
  optimizer_->begin_step();
  run_schedule(training_list(batches), batches,
               {.policy = policy_,
                .device = device_,
                .seed = config_.model.seed,
                .phase = nn::Phase::kTrain,
                .on_output = losses_into(ledger, means ? &*means : nullptr),
                .seed_of = [&](const std::string& loss) { return ledger.seed_of(loss); },
                .events = state_->sink(),
                .weight_grads = &state_->weight_grads,
                .on_last_micro_batch =
                    [this](int chunk) {
                      const auto [first, end] = stages_.unit_range(chunk);
                      optimizer_->begin_last_micro_batch(first, end);
                    },
                .timers = state_->timers,
                .ledger = &ledger});
  state_->weight_grads.drain();
  optimizer_->finish_step();
  reduce_ledger(ledger);
  state_->launched = true;
}

StepResult Engine::forward_backward(const std::vector<Batch>& micro_batches) {
  state_->set_inputs({}, loss_scaler_.scale());
  state_->updates = false;
  check_equal_counts(micro_batches);
  launch_forward_backward(on_device(micro_batches));
  // The ledger has forgotten the results that a replay would set.
  if (state_->recorded != nullptr) {
    state_->recorded = std::make_unique<RecordedSteps>(config_, device_);
  }
  return read_step();
}

void Engine::launch_step(const std::vector<Batch>& micro_batches, const StepInputs& inputs) {
  write_inputs(inputs);
  if (records(micro_batches)) {
    launch_recorded_step(micro_batches);
  } else {
    launch_prepared_step(micro_batches);
  }
}

bool Engine::records(const std::vector<Batch>& micro_batches) const {
  return state_->recorded != nullptr && !micro_batches.empty() &&
         micro_batches.front().text().positions().device() != device_;
}

void Engine::launch_recorded_step(const std::vector<Batch>& micro_batches) {
  check_equal_counts(micro_batches);
  const bool replayed =
      state_->recorded->run(on_device(micro_batches), [this](const std::vector<Batch>& batches) {
        // Timers wait for the device and for other ranks.
        Timers* const timers = std::exchange(state_->timers, nullptr);
        optimizer_->set_timers(nullptr);
        // Forms of the weights that an evaluation made lie outside the graph.
        optimizer_->tell_values_changed();
        launch_whole_step(batches);
        // What the step has begun beside its stream ends inside the graph.
        optimizer_->settle();
        state_->timers = timers;
        optimizer_->set_timers(timers);
      });
  if (!replayed) return;
  // What the launch itself tells the host; the ledger keeps which results a recorded step sets.
  optimizer_->tell_values_changed();
  state_->launched = true;
}

void Engine::write_inputs(const StepInputs& inputs) {
  state_->set_inputs(inputs, loss_scaler_.scale());
  state_->updates = true;
}

void Engine::launch_prepared_step(const std::vector<Batch>& micro_batches) {
  check_equal_counts(micro_batches);
  launch_whole_step(on_device(micro_batches));
}

void Engine::launch_whole_step(const std::vector<Batch>& batches) {
  launch_forward_backward(batches);
  nn::StepLedger& ledger = *state_->ledger;
  Tensor bad_loss;
  if (config_.training.check_for_nan_in_loss_and_grad) {
    bad_loss = tensor::not_finite(ledger.objective());
  }
  if (config_.training.log_num_zeros_in_grad) {
    ledger.set_result(kNumZeros, optimizer_->num_zero_gradients());
  }
  const optimizer::DeviceStepResult update =
      optimizer_->launch_step({.lr = state_->lr,
                               .weight_decay = state_->weight_decay,
                               .decoupled_lr = state_->decoupled_lr,
                               .width_lr = state_->width_lr,
                               .loss_scale = state_->loss_scale,
                               .skip = bad_loss,
                               .grad_norm = {}},
                              qk_clip(config_.model, ledger));
  stages_.commit(nn::StepOutcome(ledger, update.skipped));
  ledger.set_result(kGradNorm, update.grad_norm);
  ledger.set_result(kSkipped, update.skipped);
}

std::int64_t Engine::num_recorded_shapes() const {
  if (state_->layers != nullptr) return state_->layers->num_recorded() > 0 ? 1 : 0;
  return state_->recorded == nullptr ? 0 : state_->recorded->num_recorded();
}

StepResult Engine::read_step() {
  PENTATRON_CHECK(state_->launched, kInternal, "no step was launched that could be read");
  // The one place where the host waits for the device.
  StepResult result{.loss_scale = state_->written_scale, .scalars = state_->ledger->read()};
  state_->host_batches.clear();
  const nn::StepScalars& scalars = result.scalars;
  result.loss = scalars.find(kMainLoss).value_or(0);
  result.num_valid_tokens = scalars.find(kMainLossCount).value_or(0);
  result.grad_norm = scalars.find(kGradNorm).value_or(0);
  result.skipped = scalars.find(kSkipped).value_or(0) != 0;
  result.finite = std::isfinite(result.grad_norm);
  for (const nn::StepScalar& scalar : scalars) {
    if (scalar.kind == nn::ScalarKind::kLoss && !std::isfinite(scalar.value)) result.finite = false;
  }
  if (std::exchange(state_->updates, false)) loss_scaler_.update(result.skipped);
  result.scalars.set("loss scale", loss_scaler_.scale());
  return result;
}

StepResult Engine::train_step(const std::vector<Batch>& micro_batches, const StepInputs& inputs) {
  launch_step(micro_batches, inputs);
  return read_step();
}

pipeline_parallel::ScheduleShape Engine::shape_of(const std::vector<Batch>& micro_batches) const {
  return {.num_ranks = static_cast<int>(context_.size("pp")),
          .num_micro_batches = std::max(1, static_cast<int>(micro_batches.size())),
          .num_chunks = stages_.size(),
          .group_size = static_cast<int>(config_.parallel.microbatch_group_size_per_vp_stage)};
}

const pipeline_parallel::ActionList& Engine::training_list(
    const std::vector<Batch>& micro_batches) {
  const pipeline_parallel::ScheduleShape shape = shape_of(micro_batches);
  const auto [entry, is_new] = state_->training_lists.try_emplace(shape.num_micro_batches);
  if (is_new) {
    auto lists = pipeline_parallel::make_schedule(
        pipeline_parallel::schedule_choice(config_.model, config_.parallel), shape);
    entry->second = std::move(lists.at(static_cast<std::size_t>(context_.coordinate("pp"))));
  }
  return entry->second;
}

void Engine::run_schedule(const pipeline_parallel::ActionList& list,
                          const std::vector<Batch>& micro_batches,
                          const pipeline_parallel::ExecutorOptions& options) {
  // A data-parallel rank may have none in a step; its replicas do the work.
  if (micro_batches.empty()) return;
  std::vector<pipeline_parallel::StageSlot> slots;
  for (int chunk = 0; chunk < stages_.size(); ++chunk) {
    slots.push_back({&stages_.at(chunk), stages_.unit_range(chunk).first});
  }
  pipeline_parallel::run_schedule(
      list, slots, {.activations = context_.group("pp"), .gradients = context_.second_group("pp")},
      micro_batches, options);
}

EvaluationResult& EvaluationResult::operator+=(const EvaluationResult& other) {
  loss_sum += other.loss_sum;
  loss_count += other.loss_count;
  num_valid_tokens += other.num_valid_tokens;
  return *this;
}

double EvaluationResult::loss() const {
  return loss_count > 0 ? loss_sum / loss_count : std::nan("");
}

bool evaluates_means(const config::RunConfig& config) {
  return config.data.sft && config::loss_mean(config.training) == config::LossMean::kMicroBatches;
}

EvaluationResult Engine::evaluate(const std::vector<Batch>& micro_batches) {
  check_equal_counts(micro_batches);
  std::vector<Batch> batches = on_device(micro_batches);
  nn::StepLedger& ledger = *state_->evaluation;
  begin_ledger(ledger, batches);
  const tensor::NoGrad no_grad;
  const bool of_means = evaluates_means(config_);
  if (of_means) {
    MeanWeights(batches, context_.replicas(), device_).apply(batches, policy_.statistics);
  }
  const auto lists = pipeline_parallel::forward_only(shape_of(batches));
  run_schedule(lists.at(static_cast<std::size_t>(context_.coordinate("pp"))), batches,
               {.policy = policy_,
                .device = device_,
                .seed = config_.model.seed,
                .phase = nn::Phase::kEvaluate,
                .on_output = losses_into(ledger),
                .events = optimizer_.get(),
                .ledger = &ledger});
  reduce_ledger(ledger);
  const nn::StepScalars scalars = ledger.read();
  const double count = scalars.find(kMainLossCount).value_or(0);
  const double mean = scalars.find(kMainLoss).value_or(0);
  const double weight = of_means ? (count > 0 ? 1 : 0) : count;
  return {.loss_sum = mean * weight, .loss_count = weight, .num_valid_tokens = count};
}

std::vector<optimizer::StateSlice> Engine::state_slices(bool owner_only) {
  std::vector<optimizer::StateSlice> slices = optimizer_->state_slices(owner_only);
  if (owner_only && context_.replicas().rank() != 0) return slices;
  for (const nn::Buffer* buffer : stages_.buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts) {
      if (part.box.empty() || (owner_only && part.replica != 0)) continue;
      slices.push_back({&part, "buffer", 0, buffer->part_values(part)});
    }
  }
  return slices;
}

std::int64_t Engine::num_local_parameters() {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : stages_.parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) count += part.box.num_elements();
  }
  return count;
}

std::map<std::string, Tensor> Engine::gather_parameters() { return gather_parts(false); }
std::map<std::string, Tensor> Engine::gather_gradients() { return gather_parts(true); }

std::map<std::string, Tensor> Engine::gather_parts(bool gradients) {
  // What this rank contributes: for each part the row-major values of its box, fp64.
  std::map<const nn::ShardPart*, Tensor> boxes;
  const auto box_of = [&](const nn::ShardPart& part) -> Tensor& {
    Tensor& box = boxes[&part];
    if (!box.defined()) {
      box = tensor::zeros({part.box.num_elements()}, kAccumulationDType, device_);
    }
    return box;
  };
  for (std::size_t i = 0; gradients && i < optimizer_->num_stores(); ++i) {
    distributed::ParameterStore& store = optimizer_->store(i);
    for (const distributed::Piece& piece : store.pieces()) {
      if (piece.part->replica != 0 || !store.owns_pieces()) continue;
      box_of(*piece.part).narrow(0, piece.box_begin, piece.length()).copy_(piece.grad);
    }
  }
  // Parameters as forward sees them, so every rank asks for each.
  const bool contributes = context_.replicas().rank() == 0;
  for (nn::Parameter* parameter : stages_.parameters()) {
    if (gradients) break;
    const Tensor& data = parameter->data();
    for (const nn::ShardPart& part : parameter->spec().parts) {
      if (!contributes || part.replica != 0 || part.box.empty()) continue;
      box_of(part).copy_(nn::part_view(data, part).reshape({-1}));
    }
  }
  optimizer_->settle();
  // Every rank learns all names and shapes, then boxes are summed into whole tensors.
  nlohmann::json mine = nlohmann::json::object();
  for (const nn::Parameter* parameter : stages_.parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) mine[part.name] = part.logical_shape;
  }
  std::map<std::string, Shape> shapes;
  for (const std::string& text : comm::all_gather_bytes(context_.world(), mine.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    for (const auto& [name, shape] : theirs.items()) shapes[name] = shape.get<Shape>();
  }
  std::map<std::string, Tensor> whole;
  for (const auto& [name, shape] : shapes) {
    whole[name] = tensor::zeros(shape, kAccumulationDType, device_);
  }
  for (const auto& [part, values] : boxes) {
    Tensor target = whole.at(part->name);
    for (std::size_t dim = 0; dim < part->box.offset.size(); ++dim) {
      target =
          target.narrow(static_cast<std::int64_t>(dim), part->box.offset[dim], part->box.size[dim]);
    }
    target.add_(values.view(part->box.size));
    if (gradients) target.div_(state_->written_scale);
  }
  for (auto& [name, t] : whole) {
    comm::all_reduce(context_.world(), t);
    t = t.cpu();
  }
  return whole;
}

}  // namespace pentatron::training

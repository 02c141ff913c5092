// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/executor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "pentatron/base/error.h"
#include "pentatron/base/timer.h"
#include "pentatron/base/trace_counter.h"
#include "pentatron/ops/backward.h"
#include "pentatron/pipeline_parallel/held_activations.h"
#include "pentatron/pipeline_parallel/transport.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/thread_memory.h"

namespace pentatron::pipeline_parallel {
namespace {

// Receives of one direction from one peer that are under way at once: the one that is waited for
// and the one behind it.
constexpr std::size_t kReceivesAhead = 2;
// Sends to one peer without backward, where no answer bounds them. The receiver has posted as many
// receives ahead and takes its list in the same order, so waiting for the oldest ends.
constexpr std::size_t kMaxPendingSends = 2;

enum class Direction { kActivations, kGradients };

// Postpones weight gradients while a list with kBackwardWeight runs.
class PostponeScope {
 public:
  PostponeScope(WeightGradQueue* queue, bool postpone) : queue_(queue) {
    if (queue_ == nullptr) return;
    before_ = queue_->postpone();
    if (postpone) queue_->set_postpone(true);
  }
  ~PostponeScope() {
    if (queue_ != nullptr) queue_->set_postpone(before_);
  }
  PostponeScope(const PostponeScope&) = delete;
  PostponeScope& operator=(const PostponeScope&) = delete;

 private:
  WeightGradQueue* queue_;
  bool before_ = false;
};

// What a stage holds of a micro-batch between its actions; each member goes as soon as it was used.
struct MicroBatchState {
  nn::Bundle input;                              // leaves of this stage's graph
  std::vector<std::vector<Tensor>> to_send;      // per edge: activations between forward and send
  std::vector<ops::GradientEdge> edges;          // of the differentiable outputs, in order
  std::vector<std::string> output_names;         // of the model's outputs, in order of edges
  std::vector<Tensor> output_grads;              // received, in order of edges
  std::size_t grads_due = 0;                     // tensors that recv_backward still has to bring
  std::vector<std::vector<Tensor>> input_grads;  // per edge: between backward and send
};

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.numel() * tensor::item_bytes(t.scalar_type());
  return bytes;
}

bool travels_on(const StageEdge& edge, const std::string& item) {
  return edge.items.empty() ||
         std::find(edge.items.begin(), edge.items.end(), item) != edge.items.end();
}

// Forwards whose backward has not run, at most.
std::size_t peak_in_flight(const ActionList& actions) {
  int in_flight = 0;
  int peak = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++in_flight);
    if (action.kind == ActionKind::kBackward) --in_flight;
  }
  return static_cast<std::size_t>(peak);
}

class Runner {
 public:
  Runner(const ActionList& actions, std::span<const StageSlot> stages, const PipelineGroups& groups,
         const std::vector<Batch>& micro_batches, const ExecutorOptions& options)
      : actions_(actions),
        stages_(stages),
        groups_(groups),
        batches_(micro_batches),
        options_(options),
        rank_(groups.activations.rank()),
        num_ranks_(groups.activations.size()),
        graph_(options.graph.empty() ? chain_graph(num_ranks_ * static_cast<int>(stages.size()))
                                     : options.graph),
        backwards_left_(stages.size(), 0),
        states_(stages.size() * micro_batches.size()),
        most_gradient_sends_(peak_in_flight(actions) + static_cast<std::size_t>(num_ranks_)) {
    check_graph();
    for (const Action& action : actions) {
      check_action(action);
      if (action.kind == ActionKind::kBackward) {
        ++backwards_left_[static_cast<std::size_t>(action.chunk)];
        trains_ = true;
      }
      splits_weight_ = splits_weight_ || action.kind == ActionKind::kBackwardWeight;
      expect_message(action);
    }
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      PENTATRON_CHECK(!trains_ || !place(static_cast<int>(chunk)).next.empty() || options.seed_of,
                      kInternal, "a schedule with backward needs the seeds of the losses");
    }
    queue_ = options.weight_grads;
    if (splits_weight_ && queue_ == nullptr) queue_ = &own_queue_;
  }

  void run() {
    std::optional<tensor::NoGrad> no_grad;
    std::optional<tensor::EnableGrad> with_grad;
    if (trains_) {
      with_grad.emplace();
    } else {
      no_grad.emplace();
    }
    const PostponeScope postpone(queue_, splits_weight_);
    connect();
    for (auto& [channel, queue] : receives_) post_receives(channel, queue);
    for (const Action& action : actions_) step(action);
    // A caller's queue that postpones without weight actions in the list: nothing may be lost at
    // the end of the step.
    if (trains_ && queue_ != nullptr) queue_->drain();
    for (auto& [channel, queue] : sends_) queue.shrink_to(0);
  }

 private:
  using Channel = std::pair<Direction, int>;  // and the peer's rank
  // Of a message from one stage to another of the same rank: named as its receiver names it.
  using LocalKey = std::tuple<Direction, int, int, int>;  // chunk, micro-batch, edge

  [[nodiscard]] int stage_of(int chunk) const { return chunk * num_ranks_ + rank_; }
  [[nodiscard]] int rank_of(int stage) const { return stage % num_ranks_; }
  [[nodiscard]] const StageEdges& place(int chunk) const {
    return graph_[static_cast<std::size_t>(stage_of(chunk))];
  }
  [[nodiscard]] nn::Stage& stage(int chunk) const {
    return *stages_[static_cast<std::size_t>(chunk)].stage;
  }
  [[nodiscard]] const Batch& batch(int micro_batch) const {
    return batches_[static_cast<std::size_t>(micro_batch)];
  }
  [[nodiscard]] comm::Group& group(Direction direction) const {
    return direction == Direction::kActivations ? groups_.activations : groups_.gradients;
  }

  void check_graph() const {
    const auto num_stages = static_cast<std::size_t>(num_ranks_) * stages_.size();
    PENTATRON_CHECK(graph_.size() == num_stages, kInternal,
                    "a graph of {} stages for {} ranks with {} each", graph_.size(), num_ranks_,
                    stages_.size());
    for (const StageEdges& edges : graph_) {
      for (const std::vector<StageEdge>* ends : {&edges.previous, &edges.next}) {
        for (const StageEdge& edge : *ends) {
          PENTATRON_CHECK(edge.stage >= 0 && static_cast<std::size_t>(edge.stage) < num_stages,
                          kInternal, "an edge leads to stage {} of {}", edge.stage, num_stages);
        }
      }
    }
  }

  void check_action(const Action& action) const {
    PENTATRON_CHECK(action.chunk >= 0 && static_cast<std::size_t>(action.chunk) < stages_.size(),
                    kInternal, "the schedule names chunk {} of {}", action.chunk, stages_.size());
    PENTATRON_CHECK(
        action.micro_batch >= 0 && static_cast<std::size_t>(action.micro_batch) < batches_.size(),
        kInternal, "the schedule names micro-batch {} of {}", action.micro_batch, batches_.size());
    std::size_t count = 1;
    if (action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward) {
      count = place(action.chunk).next.size();
    }
    if (action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward) {
      count = place(action.chunk).previous.size();
    }
    PENTATRON_CHECK(action.edge >= 0 && static_cast<std::size_t>(action.edge) < count, kInternal,
                    "the schedule of stage {} has {} over edge {} of {}", stage_of(action.chunk),
                    to_string(action.kind), action.edge, count);
  }

  // With every peer of the list, before anything is under way.
  void connect() {
    for (const Direction direction : {Direction::kActivations, Direction::kGradients}) {
      std::vector<int> send_to, receive_from;
      for (const auto& [channel, queue] : receives_) {
        if (channel.first == direction) receive_from.push_back(channel.second);
      }
      for (const Channel& channel : sends_to_) {
        if (channel.first == direction) send_to.push_back(channel.second);
      }
      group(direction).connect(send_to, receive_from);
    }
  }

  void expect_message(const Action& action) {
    const bool activation = action.kind == ActionKind::kSendForward;
    if (activation || action.kind == ActionKind::kSendBackward) {
      const int receiver = rank_of(edge_of(action).stage);
      if (receiver != rank_) {
        sends_to_.insert({activation ? Direction::kActivations : Direction::kGradients, receiver});
      }
    }
    const bool forward = action.kind == ActionKind::kRecvForward;
    if (!forward && action.kind != ActionKind::kRecvBackward) return;
    const int peer = rank_of(edge_of(action).stage);
    if (peer == rank_) return;
    const Direction direction = forward ? Direction::kActivations : Direction::kGradients;
    receives_[{direction, peer}].expect(key_of(action));
  }

  [[nodiscard]] static MessageKey key_of(const Action& action) {
    return {action.chunk, action.micro_batch, action.edge};
  }
  // Of a send or receive.
  [[nodiscard]] const StageEdge& edge_of(const Action& action) const {
    const bool towards_next =
        action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
    const StageEdges& edges = place(action.chunk);
    return (towards_next ? edges.next : edges.previous)[static_cast<std::size_t>(action.edge)];
  }

  // Megatron's name of the timer.
  static std::string_view timer_name(ActionKind kind) {
    switch (kind) {
      case ActionKind::kRecvForward:
        return "forward-recv";
      case ActionKind::kForward:
        return "forward-compute";
      case ActionKind::kSendForward:
        return "forward-send";
      case ActionKind::kRecvBackward:
        return "backward-recv";
      case ActionKind::kSendBackward:
        return "backward-send";
      case ActionKind::kBackward:
      case ActionKind::kBackwardWeight:
        break;
    }
    return "backward-compute";
  }

  void step(const Action& action) {
    const TraceScope traced(trace(), kScheduleLane, to_string(action.kind),
                            {.chunk = action.chunk, .micro_batch = action.micro_batch});
    const TimedScope timed(options_.timers, timer_name(action.kind), 2);
    MicroBatchState& state = states_[static_cast<std::size_t>(action.chunk) * batches_.size() +
                                     static_cast<std::size_t>(action.micro_batch)];
    switch (action.kind) {
      case ActionKind::kRecvForward:
        return recv_forward(state, action);
      case ActionKind::kForward:
        return traced_forward(state, action);
      case ActionKind::kSendForward:
        return send(Direction::kActivations, action, take(state.to_send, action));
      case ActionKind::kRecvBackward:
        return recv_backward(state, action);
      case ActionKind::kBackward:
        backward(state, action);
        if (!splits_weight_) held_.release(trace(), action);
        return;
      case ActionKind::kSendBackward:
        return send(Direction::kGradients, action, take(state.input_grads, action));
      case ActionKind::kBackwardWeight:
        queue_->drain_micro_batch(action.micro_batch, action.chunk);
        return held_.release(trace(), action);
    }
  }

  [[nodiscard]] Trace* trace() const {
    Trace* trace = options_.timers != nullptr ? options_.timers->trace() : nullptr;
    return trace != nullptr && trace->recording() ? trace : nullptr;
  }

  // What it leaves for backward is what it allocated and did not free, without what is sent on and
  // with the input, which came before.
  void traced_forward(MicroBatchState& state, const Action& action) {
    if (trace() == nullptr || !trains_) return forward(state, action);
    std::int64_t kept = -tensor::held_bytes(options_.device);
    forward(state, action);
    kept += tensor::held_bytes(options_.device);
    for (const std::vector<Tensor>& edge : state.to_send) kept -= bytes_of(edge);
    for (const nn::BundleItem& item : state.input) kept += bytes_of({item.tensor});
    held_.keep(trace(), action, kept);
  }

  std::vector<Tensor> take(std::vector<std::vector<Tensor>>& per_edge, const Action& action) const {
    const auto edge = static_cast<std::size_t>(action.edge);
    PENTATRON_CHECK(edge < per_edge.size(), kInternal,
                    "stage {} sends before it has anything to send", stage_of(action.chunk));
    return std::exchange(per_edge[edge], {});
  }

  void send(Direction direction, const Action& action, std::vector<Tensor> tensors) {
    const int other = edge_of(action).stage;
    const int peer = rank_of(other);
    if (peer == rank_) {
      local_[local_key(direction, action, other)] = std::move(tensors);
      return;
    }
    SendQueue& queue = sends_[{direction, peer}];
    queue.poll();
    if (!trains_) queue.shrink_to(kMaxPendingSends - 1);
    // Where a backend cannot tell that a send has ended: the peer is never further behind.
    if (direction == Direction::kGradients) queue.shrink_to(most_gradient_sends_);
    queue.post(group(direction), peer, key_of(action), std::move(tensors));
  }

  [[nodiscard]] LocalKey local_key(Direction direction, const Action& action, int other) const {
    const StageEdges& theirs = graph_[static_cast<std::size_t>(other)];
    const std::vector<StageEdge>& ends =
        direction == Direction::kActivations ? theirs.previous : theirs.next;
    const auto end = std::find_if(ends.begin(), ends.end(), [&](const StageEdge& edge) {
      return edge.stage == stage_of(action.chunk);
    });
    PENTATRON_CHECK(end != ends.end(), kInternal, "stages {} and {} do not share an edge",
                    stage_of(action.chunk), other);
    return {direction, other / num_ranks_, action.micro_batch,
            static_cast<int>(end - ends.begin())};
  }

  std::vector<Tensor> receive(Direction direction, const Action& action) {
    const int peer = rank_of(edge_of(action).stage);
    if (peer == rank_) {
      auto found = local_.extract({direction, action.chunk, action.micro_batch, action.edge});
      PENTATRON_CHECK(!found.empty(), kInternal, "stage {} receives what was not sent",
                      stage_of(action.chunk));
      return std::move(found.mapped());
    }
    const Channel channel{direction, peer};
    std::vector<Tensor> tensors = receives_.at(channel).take(key_of(action));
    trace_message(direction, action, bytes_of(tensors));
    post_receives(channel, receives_.at(channel));
    return tensors;
  }

  // From its posting, which the record saw, to its use.
  void trace_message(Direction direction, const Action& action, std::int64_t bytes) {
    const auto posted = posted_ns_.extract({direction, key_of(action)});
    if (trace() == nullptr || posted.empty()) return;
    trace()->add({.lane = std::string(kMessageLane),
                  .name = std::string(to_string(action.kind)),
                  .begin_ns = posted.mapped(),
                  .end_ns = trace()->now_ns(),
                  .chunk = action.chunk,
                  .micro_batch = action.micro_batch,
                  .bytes = bytes});
  }

  void post_receives(const Channel& channel, ReceiveQueue& queue) {
    const Direction direction = channel.first;
    const bool forward = direction == Direction::kActivations;
    queue.post_ahead(group(direction), channel.second, kReceivesAhead, [&](const MessageKey& key) {
      if (trace() != nullptr) posted_ns_[{direction, key}] = trace()->now_ns();
      const StageEdges& edges = place(key.chunk);
      const StageEdge& edge =
          (forward ? edges.previous : edges.next)[static_cast<std::size_t>(key.edge)];
      const nn::Stage& receiver = stage(key.chunk);
      std::vector<Tensor> tensors;
      for (const nn::BundleItemSpec& spec : forward
                                                ? receiver.input_spec(batch(key.micro_batch))
                                                : receiver.output_spec(batch(key.micro_batch))) {
        if (!travels_on(edge, spec.name) || !(forward || spec.differentiable)) continue;
        tensors.push_back(tensor::empty(spec.shape, spec.dtype, options_.device));
      }
      return tensors;
    });
  }

  void recv_forward(MicroBatchState& state, const Action& action) {
    const nn::BundleSpec spec = stage(action.chunk).input_spec(batch(action.micro_batch));
    // Edges may bring their items in any order, the bundle has the spec's.
    if (state.input.empty()) {
      for (const nn::BundleItemSpec& s : spec) {
        state.input.push_back({s.name, Tensor(), s.differentiable});
      }
    }
    std::vector<Tensor> tensors = receive(Direction::kActivations, action);
    std::size_t number = 0;
    for (nn::BundleItem& item : state.input) {
      if (!travels_on(edge_of(action), item.name)) continue;
      item.tensor = tensors.at(number++).detach();
      if (trains_ && item.differentiable) item.tensor.requires_grad_(true);
    }
  }

  void forward(MicroBatchState& state, const Action& action) {
    const StageSlot& slot = stages_[static_cast<std::size_t>(action.chunk)];
    nn::StepContext context{
        .batch = batch(action.micro_batch),
        .policy = options_.policy,
        .seed = options_.seed,
        .phase = options_.phase,
        .output = options_.output,
        .scope = {.queue = queue_, .micro_batch = action.micro_batch, .chunk = action.chunk},
        .events = options_.events,
        .first_unit = slot.first_unit,
        .kv_cache = slot.kv_cache,
        .ledger = options_.ledger};
    for (const nn::BundleItem& item : state.input) {
      PENTATRON_CHECK(item.tensor.defined(), kInternal, "stage {}: input {} was not received",
                      stage_of(action.chunk), item.name);
    }
    nn::Bundle output = slot.stage->forward(state.input, context);
    if (place(action.chunk).next.empty()) {
      take_outputs(state, action, output);
    } else {
      take_activations(state, action, output);
    }
    // Without backward nobody reads the input again.
    if (!trains_) state.input.clear();
  }

  void take_outputs(MicroBatchState& state, const Action& action, nn::Bundle& output) {
    for (nn::BundleItem& item : output) {
      const bool begins = trains_ && item.differentiable;
      if (begins) {
        state.edges.emplace_back(item.tensor);
        state.output_names.push_back(item.name);
      }
      // A copy of what has a graph: the graph's own tensor goes with it.
      item.tensor = begins ? item.tensor.detach().clone() : item.tensor.detach();
    }
    if (options_.on_output) options_.on_output(action.chunk, action.micro_batch, output);
  }

  void take_activations(MicroBatchState& state, const Action& action, const nn::Bundle& output) {
    const nn::BundleSpec spec = stage(action.chunk).output_spec(batch(action.micro_batch));
    const std::vector<StageEdge>& next = place(action.chunk).next;
    PENTATRON_CHECK(output.size() == spec.size(), kInternal,
                    "stage {} returned {} items, its output spec has {}", stage_of(action.chunk),
                    output.size(), spec.size());
    state.to_send.assign(next.size(), {});
    for (std::size_t i = 0; i < output.size(); ++i) {
      const Tensor& t = output[i].tensor;
      PENTATRON_CHECK(output[i].name == spec[i].name && t.sizes() == IntList(spec[i].shape) &&
                          t.scalar_type() == spec[i].dtype,
                      kInternal, "stage {} returned {} {}, its output spec says {} {}{}",
                      stage_of(action.chunk), output[i].name, tensor::describe(t), spec[i].name,
                      tensor::dtype_name(spec[i].dtype), spec[i].shape);
      const bool gets_gradient = trains_ && spec[i].differentiable;
      if (gets_gradient) state.edges.emplace_back(t);
      const Tensor sent = t.detach().contiguous();
      for (std::size_t e = 0; e < next.size(); ++e) {
        if (!travels_on(next[e], spec[i].name)) continue;
        state.to_send[e].push_back(sent);
        if (gets_gradient) ++state.grads_due;
      }
    }
    state.output_grads.assign(state.edges.size(), Tensor());
  }

  void recv_backward(MicroBatchState& state, const Action& action) {
    std::vector<Tensor> received = receive(Direction::kGradients, action);
    const StageEdge& edge = edge_of(action);
    // A stage that returns the gradient has received the activation: the send has ended.
    if (rank_of(edge.stage) != rank_) {
      sends_[{Direction::kActivations, rank_of(edge.stage)}].answered(key_of(action));
    }
    std::size_t number = 0;
    std::size_t taken = 0;
    for (const nn::BundleItemSpec& spec :
         stage(action.chunk).output_spec(batch(action.micro_batch))) {
      if (!spec.differentiable) continue;
      const std::size_t index = number++;
      if (!travels_on(edge, spec.name)) continue;
      PENTATRON_CHECK(index < state.output_grads.size() && state.grads_due > 0, kInternal,
                      "stage {} receives a gradient that no forward asked for",
                      stage_of(action.chunk));
      Tensor& grad = state.output_grads[index];
      Tensor& came = received.at(taken++);
      grad = grad.defined() ? grad.add(came) : std::move(came);
      --state.grads_due;
    }
  }

  void backward(MicroBatchState& state, const Action& action) {
    if (--backwards_left_[static_cast<std::size_t>(action.chunk)] == 0 &&
        options_.on_last_micro_batch) {
      options_.on_last_micro_batch(action.chunk);
    }
    if (place(action.chunk).next.empty()) {
      for (const std::string& name : state.output_names) {
        state.output_grads.push_back(options_.seed_of(name));
      }
    }
    PENTATRON_CHECK(state.edges.size() == state.output_grads.size(), kInternal,
                    "stage {}: {} gradients for {} outputs", stage_of(action.chunk),
                    state.output_grads.size(), state.edges.size());
    PENTATRON_CHECK(state.grads_due == 0, kInternal,
                    "stage {}: {} gradients of its outputs were not received before backward",
                    stage_of(action.chunk), state.grads_due);
    std::vector<ops::GradientEdge*> edges;
    std::vector<Tensor> grads;
    for (std::size_t i = 0; i < state.edges.size(); ++i) {
      if (!state.edges[i].defined()) continue;
      edges.push_back(&state.edges[i]);
      grads.push_back(std::move(state.output_grads[i]));
    }
    state.output_grads.clear();
    state.output_names.clear();
    if (!edges.empty()) ops::run_backward(edges, grads);
    state.edges.clear();
    take_input_grads(state, place(action.chunk).previous);
    state.input.clear();
  }

  static void take_input_grads(MicroBatchState& state, const std::vector<StageEdge>& previous) {
    state.input_grads.assign(previous.size(), {});
    for (nn::BundleItem& item : state.input) {
      if (!item.differentiable) continue;
      Tensor grad = item.tensor.grad();
      // No gradient flows there: the previous stage still waits for one.
      if (!grad.defined()) {
        grad = tensor::zeros(item.tensor.sizes(), item.tensor.scalar_type(), item.tensor.device());
      }
      const auto edge = std::find_if(
          previous.begin(), previous.end(),
          [&](const StageEdge& candidate) { return travels_on(candidate, item.name); });
      state.input_grads[static_cast<std::size_t>(edge - previous.begin())].push_back(
          grad.detach().contiguous());
    }
  }

  const ActionList& actions_;
  std::span<const StageSlot> stages_;
  const PipelineGroups& groups_;
  const std::vector<Batch>& batches_;
  const ExecutorOptions& options_;
  const int rank_;
  const int num_ranks_;
  const StageGraph graph_;
  std::vector<int> backwards_left_;  // per chunk
  std::vector<MicroBatchState> states_;
  std::size_t most_gradient_sends_;
  bool trains_ = false;
  bool splits_weight_ = false;
  WeightGradQueue own_queue_;
  WeightGradQueue* queue_ = nullptr;
  std::map<Channel, SendQueue> sends_;
  std::set<Channel> sends_to_;
  std::map<Channel, ReceiveQueue> receives_;
  std::map<LocalKey, std::vector<Tensor>> local_;
  HeldActivations held_;
  std::map<std::pair<Direction, MessageKey>, std::int64_t> posted_ns_;  // of a traced run
};

}  // namespace

void run_schedule(const ActionList& actions, std::span<const StageSlot> stages,
                  const PipelineGroups& groups, const std::vector<Batch>& micro_batches,
                  const ExecutorOptions& options) {
  Runner(actions, stages, groups, micro_batches, options).run();
}

}  // namespace pentatron::pipeline_parallel

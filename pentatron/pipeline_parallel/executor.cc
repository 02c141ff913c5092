// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/executor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/base/timer.h"
#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::pipeline_parallel {
namespace {

// Sends of one direction. A send ends when the peer has received it; its tensors live here until
// then.
class SendQueue {
 public:
  void post(comm::Group& group, int peer, int micro_batch, std::vector<Tensor> tensors) {
    Entry entry{micro_batch, std::move(tensors), {}};
    for (Tensor& t : entry.tensors) entry.works.push_back(group.send(t, peer));
    entries_.push_back(std::move(entry));
  }
  // Ends every send up to this micro-batch's: its answer has come, so the peer has them.
  void received_through(int micro_batch) {
    const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.micro_batch == micro_batch;
    });
    if (!known) return;
    bool reached = false;
    while (!reached) {
      reached = entries_.front().micro_batch == micro_batch;
      finish_oldest();
    }
  }
  void shrink_to(std::size_t count) {
    while (entries_.size() > count) finish_oldest();
  }

 private:
  struct Entry {
    int micro_batch;
    std::vector<Tensor> tensors;
    std::vector<comm::WorkPtr> works;
  };

  void finish_oldest() {
    for (comm::WorkPtr& work : entries_.front().works) work->wait();
    entries_.pop_front();
  }

  std::deque<Entry> entries_;
};

// Gradients on the way to the previous stage that may be unanswered before the next one is posted.
// The previous stage receives them in order and needs nothing newer from this stage for that, so
// waiting here cannot close a circle.
constexpr std::size_t kMaxPendingSends = 2;

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
  std::vector<Tensor> output_grads;              // received, in order of edges
  std::size_t grads_due = 0;                     // tensors that recv_backward still has to bring
  std::vector<std::vector<Tensor>> input_grads;  // per edge: between backward and send
};

bool travels_on(const StageEdge& edge, const std::string& item) {
  return edge.items.empty() ||
         std::find(edge.items.begin(), edge.items.end(), item) != edge.items.end();
}

StageEdges chain_edges(const comm::Group& pipeline) {
  StageEdges edges;
  if (pipeline.rank() > 0) edges.previous.push_back({pipeline.rank() - 1, {}});
  if (pipeline.rank() + 1 < pipeline.size()) edges.next.push_back({pipeline.rank() + 1, {}});
  return edges;
}

class Runner {
 public:
  Runner(const ActionList& actions, nn::Stage& stage, comm::Group& pipeline,
         const std::vector<BatchMeta>& micro_batches, const Tensor& loss_seed,
         const ExecutorOptions& options)
      : actions_(actions),
        stage_(stage),
        pipeline_(pipeline),
        batches_(micro_batches),
        loss_seed_(loss_seed),
        options_(options),
        place_(options.edges ? *options.edges : chain_edges(pipeline)),
        states_(micro_batches.size()),
        sent_forward_(place_.next.size()),
        sent_backward_(place_.previous.size()) {
    for (const std::vector<StageEdge>* edges : {&place_.previous, &place_.next}) {
      for (const StageEdge& edge : *edges) {
        PENTATRON_CHECK(edge.peer >= 0 && edge.peer < pipeline.size(), kInternal,
                        "an edge leads to rank {} of a pipeline of {}", edge.peer, pipeline.size());
      }
    }
    for (const Action& action : actions) {
      check_edge(action);
      PENTATRON_CHECK(action.chunk == 0, kUnsupported,
                      "virtual pipeline stages are not built yet; do not set "
                      "--num-virtual-stages-per-pipeline-rank");
      PENTATRON_CHECK(action.micro_batch >= 0 &&
                          static_cast<std::size_t>(action.micro_batch) < micro_batches.size(),
                      kInternal, "the schedule names micro-batch {} of {}", action.micro_batch,
                      micro_batches.size());
      if (action.kind == ActionKind::kBackward) ++backwards_left_;
      splits_weight_ = splits_weight_ || action.kind == ActionKind::kBackwardWeight;
    }
    trains_ = backwards_left_ > 0;
    PENTATRON_CHECK(!trains_ || !is_last() || loss_seed.defined(), kInternal,
                    "a schedule with backward needs the seed of the loss");
    queue_ = options.weight_grads;
    if (splits_weight_ && queue_ == nullptr) queue_ = &own_queue_;
  }

  StepLosses run() {
    std::optional<tensor::NoGrad> no_grad;
    std::optional<tensor::EnableGrad> with_grad;
    if (trains_) {
      with_grad.emplace();
    } else {
      no_grad.emplace();
    }
    const PostponeScope postpone(queue_, splits_weight_);
    for (const Action& action : actions_) step(action);
    // A caller's queue that postpones without weight actions in the list: nothing may be lost at
    // the end of the step.
    if (trains_ && queue_ != nullptr) queue_->drain();
    for (SendQueue& sent : sent_forward_) sent.shrink_to(0);
    for (SendQueue& sent : sent_backward_) sent.shrink_to(0);
    return std::move(losses_);
  }

 private:
  [[nodiscard]] bool is_first() const { return place_.previous.empty(); }
  [[nodiscard]] bool is_last() const { return place_.next.empty(); }

  void check_edge(const Action& action) const {
    std::size_t count = 1;
    if (action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward) {
      count = place_.next.size();
    }
    if (action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward) {
      count = place_.previous.size();
    }
    PENTATRON_CHECK(action.edge >= 0 && static_cast<std::size_t>(action.edge) < count, kInternal,
                    "the schedule of stage {} has {} over edge {} of {}", pipeline_.rank(),
                    to_string(action.kind), action.edge, count);
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
    const TimedScope timed(options_.timers, timer_name(action.kind), 2);
    const auto index = static_cast<std::size_t>(action.micro_batch);
    const auto edge = static_cast<std::size_t>(action.edge);
    MicroBatchState& state = states_[index];
    switch (action.kind) {
      case ActionKind::kRecvForward:
        return recv_forward(state, batches_[index], place_.previous[edge]);
      case ActionKind::kForward:
        return forward(state, batches_[index], action.micro_batch);
      case ActionKind::kSendForward:
        // Forward only: no answer tells when a send has ended, so the oldest are ended here (the
        // next stage receives in order and waits for nothing of ours).
        if (!trains_) sent_forward_[edge].shrink_to(kMaxPendingSends - 1);
        sent_forward_[edge].post(pipeline_, place_.next[edge].peer, action.micro_batch,
                                 take(state.to_send, edge));
        return;
      case ActionKind::kRecvBackward:
        recv_backward(state, batches_[index], place_.next[edge]);
        sent_forward_[edge].received_through(action.micro_batch);
        return;
      case ActionKind::kBackward:
        return backward(state, batches_[index]);
      case ActionKind::kSendBackward:
        sent_backward_[edge].shrink_to(kMaxPendingSends - 1);
        sent_backward_[edge].post(pipeline_, place_.previous[edge].peer, action.micro_batch,
                                  take(state.input_grads, edge));
        return;
      case ActionKind::kBackwardWeight:
        queue_->drain_micro_batch(action.micro_batch);
        return;
    }
  }

  std::vector<Tensor> take(std::vector<std::vector<Tensor>>& per_edge, std::size_t edge) const {
    PENTATRON_CHECK(edge < per_edge.size(), kInternal,
                    "stage {} sends before it has anything to send", pipeline_.rank());
    return std::exchange(per_edge[edge], {});
  }

  void recv_forward(MicroBatchState& state, const BatchMeta& batch, const StageEdge& edge) {
    const nn::BundleSpec spec = stage_.input_spec(batch);
    // Edges may bring their items in any order, the bundle has the spec's.
    if (state.input.empty()) {
      for (const nn::BundleItemSpec& s : spec) {
        state.input.push_back({s.name, Tensor(), s.differentiable});
      }
    }
    std::vector<comm::WorkPtr> works;
    for (std::size_t i = 0; i < spec.size(); ++i) {
      if (!travels_on(edge, spec[i].name)) continue;
      Tensor t = tensor::empty(spec[i].shape, spec[i].dtype, options_.device);
      works.push_back(pipeline_.recv(t, edge.peer));
      state.input[i].tensor = std::move(t);
    }
    for (comm::WorkPtr& work : works) work->wait();
    for (nn::BundleItem& item : state.input) {
      if (!travels_on(edge, item.name)) continue;
      item.tensor = item.tensor.detach();
      if (trains_ && item.differentiable) item.tensor.requires_grad_(true);
    }
  }

  void forward(MicroBatchState& state, const BatchMeta& batch, int micro_batch) {
    nn::StepContext context{.batch = batch,
                            .policy = options_.policy,
                            .seed = options_.seed,
                            .phase = options_.phase,
                            .scope = {.queue = queue_, .micro_batch = micro_batch},
                            .events = options_.events,
                            .max_attention_logit = options_.max_attention_logit};
    for (const nn::BundleItem& item : state.input) {
      PENTATRON_CHECK(item.tensor.defined(), kInternal, "stage {}: input {} was not received",
                      pipeline_.rank(), item.name);
    }
    nn::Bundle output = stage_.forward(state.input, context);
    if (is_last()) {
      take_loss(state, output);
    } else {
      take_activations(state, output, stage_.output_spec(batch));
    }
    // Without backward nobody reads the input again.
    if (!trains_) state.input.clear();
  }

  void take_loss(MicroBatchState& state, const nn::Bundle& output) {
    PENTATRON_CHECK(output.size() == 1 && output[0].tensor.numel() == 1, kInternal,
                    "the last stage must return its loss alone, not {} items", output.size());
    const Tensor& loss = output[0].tensor;
    if (trains_) state.edges.emplace_back(loss);
    // A copy: the graph's own tensor goes with the graph.
    Tensor value = loss.detach().clone();
    losses_.loss_sum = losses_.loss_sum.defined() ? losses_.loss_sum.add(value) : value;
    losses_.per_micro_batch.push_back(std::move(value));
  }

  void take_activations(MicroBatchState& state, const nn::Bundle& output,
                        const nn::BundleSpec& spec) {
    PENTATRON_CHECK(output.size() == spec.size(), kInternal,
                    "stage {} returned {} items, its output spec has {}", pipeline_.rank(),
                    output.size(), spec.size());
    state.to_send.assign(place_.next.size(), {});
    for (std::size_t i = 0; i < output.size(); ++i) {
      const Tensor& t = output[i].tensor;
      PENTATRON_CHECK(output[i].name == spec[i].name && t.sizes() == IntList(spec[i].shape) &&
                          t.scalar_type() == spec[i].dtype,
                      kInternal, "stage {} returned {} {}, its output spec says {} {}{}",
                      pipeline_.rank(), output[i].name, tensor::describe(t), spec[i].name,
                      tensor::dtype_name(spec[i].dtype), spec[i].shape);
      const bool gets_gradient = trains_ && spec[i].differentiable;
      if (gets_gradient) state.edges.emplace_back(t);
      const Tensor sent = t.detach().contiguous();
      for (std::size_t e = 0; e < place_.next.size(); ++e) {
        if (!travels_on(place_.next[e], spec[i].name)) continue;
        state.to_send[e].push_back(sent);
        if (gets_gradient) ++state.grads_due;
      }
    }
    state.output_grads.assign(state.edges.size(), Tensor());
  }

  void recv_backward(MicroBatchState& state, const BatchMeta& batch, const StageEdge& edge) {
    std::vector<comm::WorkPtr> works;
    std::vector<Tensor> received(state.output_grads.size());
    std::size_t number = 0;
    for (const nn::BundleItemSpec& spec : stage_.output_spec(batch)) {
      if (!spec.differentiable) continue;
      const std::size_t index = number++;
      if (!travels_on(edge, spec.name)) continue;
      PENTATRON_CHECK(index < received.size() && state.grads_due > 0, kInternal,
                      "stage {} receives a gradient that no forward asked for", pipeline_.rank());
      Tensor& t = received[index];
      t = tensor::empty(spec.shape, spec.dtype, options_.device);
      works.push_back(pipeline_.recv(t, edge.peer));
      --state.grads_due;
    }
    for (comm::WorkPtr& work : works) work->wait();
    for (std::size_t i = 0; i < received.size(); ++i) {
      if (!received[i].defined()) continue;
      Tensor& grad = state.output_grads[i];
      grad = grad.defined() ? grad.add(received[i]) : received[i];
    }
  }

  void backward(MicroBatchState& state, const BatchMeta& batch) {
    if (--backwards_left_ == 0 && options_.on_last_micro_batch) options_.on_last_micro_batch();
    if (is_last()) state.output_grads = {loss_seed_};
    PENTATRON_CHECK(state.edges.size() == state.output_grads.size(), kInternal,
                    "stage {}: {} gradients for {} outputs", pipeline_.rank(),
                    state.output_grads.size(), state.edges.size());
    PENTATRON_CHECK(state.grads_due == 0, kInternal,
                    "stage {}: {} gradients of its outputs were not received before backward",
                    pipeline_.rank(), state.grads_due);
    std::vector<ops::GradientEdge*> edges;
    std::vector<Tensor> grads;
    for (std::size_t i = 0; i < state.edges.size(); ++i) {
      if (!state.edges[i].defined()) continue;
      edges.push_back(&state.edges[i]);
      grads.push_back(std::move(state.output_grads[i]));
    }
    state.output_grads.clear();
    if (!edges.empty()) ops::run_backward(edges, grads);
    state.edges.clear();
    if (!is_first()) take_input_grads(state);
    state.input.clear();
  }

  void take_input_grads(MicroBatchState& state) {
    state.input_grads.assign(place_.previous.size(), {});
    for (nn::BundleItem& item : state.input) {
      if (!item.differentiable) continue;
      Tensor grad = item.tensor.grad();
      // No gradient flows there: the previous stage still waits for one.
      if (!grad.defined()) {
        grad = tensor::zeros(item.tensor.sizes(), item.tensor.scalar_type(), item.tensor.device());
      }
      const auto edge = std::find_if(
          place_.previous.begin(), place_.previous.end(),
          [&](const StageEdge& candidate) { return travels_on(candidate, item.name); });
      state.input_grads[static_cast<std::size_t>(edge - place_.previous.begin())].push_back(
          grad.detach().contiguous());
    }
  }

  const ActionList& actions_;
  nn::Stage& stage_;
  comm::Group& pipeline_;
  const std::vector<BatchMeta>& batches_;
  const Tensor& loss_seed_;
  const ExecutorOptions& options_;
  const StageEdges place_;
  std::vector<MicroBatchState> states_;
  std::size_t backwards_left_ = 0;
  bool trains_ = false;
  bool splits_weight_ = false;
  WeightGradQueue own_queue_;
  WeightGradQueue* queue_ = nullptr;
  std::vector<SendQueue> sent_forward_;   // per outgoing edge
  std::vector<SendQueue> sent_backward_;  // per incoming edge
  StepLosses losses_;
};

}  // namespace

StepLosses run_schedule(const ActionList& actions, nn::Stage& stage, comm::Group& pipeline,
                        const std::vector<BatchMeta>& micro_batches, const Tensor& loss_seed,
                        const ExecutorOptions& options) {
  return Runner(actions, stage, pipeline, micro_batches, loss_seed, options).run();
}

}  // namespace pentatron::pipeline_parallel

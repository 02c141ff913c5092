// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/recorded_layers.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/ops/backward.h"
#include "pentatron/tensor/batch_tensors.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/recorded_steps.h"

namespace pentatron::training {
namespace {

// Work that is recorded once. On the CPU it is kept and run again.
class LayerGraph final {
 public:
  LayerGraph(Device device, std::function<void()> work, const LayerGraph* shares) {
    if (device.is_cpu()) {
      work();
      work_ = std::move(work);
      return;
    }
    graph_.emplace(device);
    graph_->capture(work, shares != nullptr ? &*shares->graph_ : nullptr);
  }
  void replay() {
    if (graph_) {
      graph_->replay();
    } else {
      work_();
    }
  }
  // Whether a replay runs the host's code too.
  [[nodiscard]] bool runs_host_code() const { return !graph_; }

 private:
  std::optional<tensor::StepGraph> graph_;
  std::function<void()> work_;
};

bool same_memory(const Tensor& a, const Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides();
}

// Values into memory that a graph reads.
void bring(const Tensor& memory, const Tensor& values) {
  if (!values.defined()) {
    memory.zero_();
  } else if (!same_memory(memory, values)) {
    memory.copy_(values);
  }
}

// The first time the results become the memory, later they go into it.
void keep(std::vector<Tensor>& memory, const std::vector<Tensor>& results) {
  if (memory.empty()) {
    for (const Tensor& t : results) memory.push_back(t.defined() ? t.variable_data() : Tensor());
    return;
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].defined()) memory[i].copy_(results[i]);
  }
}

std::vector<Tensor> aliases(const std::vector<Tensor>& memory) {
  std::vector<Tensor> tensors;
  for (const Tensor& t : memory) tensors.push_back(t.defined() ? t.variable_data() : Tensor());
  return tensors;
}

// A batch of the same shape in memory of its own.
Batch own_copy(const Batch& batch, Device device) {
  Batch copy;
  for (const auto& [name, layout] : batch.sequences) {
    copy.sequences.emplace(name, SequenceLayout(layout.rows()).to(device));
  }
  for (const auto& [name, values] : batch.fields) {
    copy.fields.emplace(name, values.defined() ? values.clone() : Tensor());
  }
  return copy;
}

// The values of another batch of that shape; a field may have come in another dtype (weights of
// means).
void copy_values(const Batch& to, const Batch& from) {
  copy_tensors(Batch{.sequences = to.sequences, .fields = {}},
               Batch{.sequences = from.sequences, .fields = {}});
  for (const auto& [name, values] : to.fields) {
    if (values.defined()) values.copy_(from.field(name));
  }
}

// Recorded work reads weights where they are: a gather of theirs that is under way is waited for,
// as ops wait when they ask for a weight.
void wait_for(const std::vector<nn::Parameter*>& weights) {
  for (nn::Parameter* weight : weights) static_cast<void>(weight->data());
}

bool is_layer(const nn::Unit& unit) { return unit.name.find(".layers.") != std::string::npos; }

}  // namespace

LayerSlots layer_slots(const pipeline_parallel::ActionList& list, int num_chunks) {
  using pipeline_parallel::ActionKind;
  LayerSlots slots{.of = {}, .count = std::vector<int>(static_cast<std::size_t>(num_chunks), 1)};
  std::vector<std::set<int>> taken(static_cast<std::size_t>(num_chunks));
  for (const pipeline_parallel::Action& action : list) {
    std::set<int>& here = taken.at(static_cast<std::size_t>(action.chunk));
    const std::pair key{action.chunk, action.micro_batch};
    if (action.kind == ActionKind::kForward) {
      int slot = action.micro_batch == 0 ? 0 : 1;
      while (slot > 0 && here.contains(slot)) ++slot;
      here.insert(slot);
      slots.of[key] = slot;
      int& count = slots.count[static_cast<std::size_t>(action.chunk)];
      count = std::max(count, slot + 1);
    } else if (action.kind == ActionKind::kBackward) {
      here.erase(slots.of.at(key));
    }
  }
  return slots;
}

// A layer as steps that were not recorded have shown it.
struct RecordedLayers::Layer {
  int chunk = 0;
  std::vector<nn::Parameter*> parameters;
  bool watched = false;
  nn::UnitBody body = {};
  ops::Scope scope = {};
  nn::StepLedger* ledger = nullptr;
  struct Input {
    Shape shape;
    DType dtype;
    bool learns;
  };
  std::vector<Input> inputs = {};
};

struct RecordedLayers::Recording {
  std::vector<Tensor> inputs;        // that forward reads
  std::vector<Tensor> outputs;       // that it writes
  std::vector<Tensor> output_grads;  // that backward reads
  std::vector<Tensor> input_grads;
  std::unique_ptr<LayerGraph> forward;
  std::unique_ptr<LayerGraph> backward;
  // Between the two while they run on the host.
  std::vector<Tensor> leaves;
  std::vector<ops::GradientEdge> edges;
};

struct RecordedLayers::Slot {
  Batch batch;
  int micro_batch = -1;                  // whose values the batch has
  std::map<int, Recording> layers = {};  // by unit
  const LayerGraph* memory = nullptr;    // of the first, which the others share
};

// In the graph for a layer that is replayed.
class RecordedLayers::Replay final : public ops::Backward {
 public:
  Replay(Recording& recording, const Layer& layer) : recording_(recording), layer_(layer) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    for (std::size_t i = 0; i < output_grads.size(); ++i) {
      bring(recording_.output_grads[i], output_grads[i]);
    }
    recording_.backward->replay();
    if (!recording_.backward->runs_host_code()) {
      for (nn::Parameter* parameter : layer_.parameters) {
        // What the recorded work did when it asked for the slot.
        if (parameter->trainable()) static_cast<void>(parameter->grad_slot());
      }
    }
    return aliases(recording_.input_grads);
  }
  void release() override {}
  std::string_view name() const override { return "RecordedLayer"; }

 private:
  Recording& recording_;
  const Layer& layer_;
};

RecordedLayers::RecordedLayers(const config::RunConfig& config, const PrecisionPolicy& policy,
                               nn::LocalStages& stages, Device device, ops::UnitEventSink& events)
    : policy_(policy),
      seed_(config.model.seed),
      warm_up_steps_(std::max<std::int64_t>(1, config.training.cuda_graph_warmup_steps)),
      num_chunks_(stages.size()),
      device_(device),
      events_(events) {
  const std::vector<nn::Unit> units = stages.units();
  for (int chunk = 0; chunk < stages.size(); ++chunk) {
    const auto [first, end] = stages.unit_range(chunk);
    for (int unit = first; unit < end; ++unit) {
      const nn::Unit& here = units.at(static_cast<std::size_t>(unit));
      if (!is_layer(here)) continue;
      layers_.emplace(unit, Layer{.chunk = chunk, .parameters = here.parameters});
    }
  }
}

RecordedLayers::~RecordedLayers() = default;

std::int64_t RecordedLayers::num_recorded() const {
  return slots_.empty() ? 0 : std::ssize(layers_);
}

bool RecordedLayers::all_watched() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const auto& entry) { return entry.second.watched; });
}

void RecordedLayers::begin_step(const pipeline_parallel::ActionList& list,
                                const std::vector<Batch>& batches) {
  ++num_steps_;
  replays_ = false;
  if (batches.empty() || layers_.empty()) return;
  const std::string shape = shape_key({batches.front()});
  const bool alike = std::all_of(batches.begin(), batches.end(),
                                 [&](const Batch& batch) { return shape_key({batch}) == shape; });
  if (!alike) return;
  now_ = layer_slots(list, num_chunks_);
  if (slots_.empty()) {
    const bool seen = shape == shape_ && all_watched();
    shape_ = shape;
    if (!seen || num_steps_ <= warm_up_steps_) return;
    record(now_, batches.front());
  }
  replays_ = shape == shape_;
  for (std::size_t chunk = 0; chunk < slots_.size(); ++chunk) {
    replays_ = replays_ && now_.count[chunk] <= std::ssize(slots_[chunk]);
    for (Slot& slot : slots_[chunk]) slot.micro_batch = -1;
  }
}

void RecordedLayers::watch(Layer& layer, const std::vector<Tensor>& inputs,
                           const nn::StepContext& step, const nn::UnitBody& body) {
  layer.body = body;
  layer.scope = step.scope;
  layer.ledger = step.ledger;
  layer.inputs.clear();
  for (const Tensor& t : inputs) {
    layer.inputs.push_back({tensor::shape_of(t), t.scalar_type(), t.requires_grad()});
  }
  layer.watched = true;
}

void RecordedLayers::record(const LayerSlots& slots, const Batch& like) {
  for (auto& [unit, layer] : layers_) {
    wait_for(layer.parameters);
    for (nn::Parameter* parameter : layer.parameters) parameter->begin_step();
  }
  for (std::size_t chunk = 0; chunk < slots.count.size(); ++chunk) {
    std::vector<Slot>& made = slots_.emplace_back(static_cast<std::size_t>(slots.count[chunk]));
    // Slot 0 first: its backward overwrites gradients, those of the others add to them.
    for (Slot& slot : made) {
      slot.batch = own_copy(like, device_);
      record_slot(slot, static_cast<int>(chunk));
    }
  }
  log::debug("recorded {} layers for micro-batches of shape {}", layers_.size(), shape_);
}

void RecordedLayers::record_slot(Slot& slot, int chunk) {
  std::vector<std::pair<int, Layer*>> layers;
  for (auto& [unit, layer] : layers_) {
    if (layer.chunk == chunk) layers.emplace_back(unit, &layer);
  }
  Recording* before = nullptr;
  for (const auto& [unit, layer] : layers) {
    record_forward(slot, *layer, before);
    before = &slot.layers.at(unit);
  }
  Recording* behind = nullptr;
  for (auto at = layers.rbegin(); at != layers.rend(); ++at) {
    record_backward(slot, *at->second, behind);
    behind = &slot.layers.at(at->first);
  }
}

// Where a layer reads what the one before it gives, the two share that memory.
void RecordedLayers::record_forward(Slot& slot, Layer& layer, Recording* before) {
  Recording& made = slot.layers[layer.scope.unit];
  const bool follows = before != nullptr && before->outputs.size() == layer.inputs.size();
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const Layer::Input& in = layer.inputs[i];
    const bool shared = follows && before->outputs[i].sizes() == IntList(in.shape) &&
                        before->outputs[i].scalar_type() == in.dtype;
    made.inputs.push_back(shared ? before->outputs[i] : tensor::zeros(in.shape, in.dtype, device_));
  }
  const auto work = [this, &slot, &layer, &made] {
    const tensor::EnableGrad with_grad;
    made.leaves = aliases(made.inputs);
    for (std::size_t i = 0; i < made.leaves.size(); ++i) {
      made.leaves[i].requires_grad_(layer.inputs[i].learns);
    }
    nn::StepContext step{.batch = slot.batch,
                         .policy = policy_,
                         .seed = seed_,
                         .scope = layer.scope,
                         .ledger = layer.ledger};
    const std::vector<Tensor> outputs = layer.body(made.leaves, step);
    made.edges.clear();
    for (const Tensor& output : outputs) made.edges.emplace_back(output);
    const tensor::NoGrad no_grad;
    keep(made.outputs, outputs);
  };
  made.forward = std::make_unique<LayerGraph>(device_, work, slot.memory);
  if (slot.memory == nullptr) slot.memory = made.forward.get();
}

void RecordedLayers::record_backward(Slot& slot, Layer& layer, Recording* behind) {
  Recording& made = slot.layers.at(layer.scope.unit);
  const bool follows = behind != nullptr && behind->input_grads.size() == made.outputs.size();
  for (std::size_t i = 0; i < made.outputs.size(); ++i) {
    const Tensor& output = made.outputs[i];
    const bool shared = follows && behind->input_grads[i].defined() &&
                        behind->input_grads[i].sizes() == output.sizes() &&
                        behind->input_grads[i].scalar_type() == output.scalar_type();
    made.output_grads.push_back(shared
                                    ? behind->input_grads[i]
                                    : tensor::zeros(output.sizes(), output.scalar_type(), device_));
  }
  const auto work = [&made] {
    std::vector<ops::GradientEdge*> edges;
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < made.edges.size(); ++i) {
      if (!made.edges[i].defined()) continue;
      edges.push_back(&made.edges[i]);
      gradients.push_back(made.output_grads[i]);
    }
    ops::run_backward(edges, gradients);
    std::vector<Tensor> grads;
    for (const Tensor& leaf : made.leaves) {
      grads.push_back(leaf.requires_grad() ? leaf.grad() : Tensor());
    }
    const tensor::NoGrad no_grad;
    keep(made.input_grads, grads);
    made.leaves.clear();
    made.edges.clear();
  };
  made.backward = std::make_unique<LayerGraph>(device_, work, slot.memory);
}

std::vector<Tensor> RecordedLayers::run(const std::vector<Tensor>& inputs, nn::StepContext& step,
                                        const nn::UnitBody& body) {
  const auto found = layers_.find(step.scope.unit);
  const bool trains =
      step.phase == nn::Phase::kTrain && ops::needs_backward(inputs, /*force=*/true);
  if (found == layers_.end() || !trains) return body(inputs, step);
  Layer& layer = found->second;
  if (!replays_) {
    if (slots_.empty()) watch(layer, inputs, step, body);
    return body(inputs, step);
  }
  const int number = now_.of.at({layer.chunk, step.scope.micro_batch});
  Slot& slot = slots_[static_cast<std::size_t>(layer.chunk)][static_cast<std::size_t>(number)];
  Recording& recording = slot.layers.at(step.scope.unit);
  PENTATRON_CHECK(inputs.size() == recording.inputs.size(), kInternal,
                  "a recorded layer has {} inputs, {} came", recording.inputs.size(),
                  inputs.size());
  {
    const tensor::NoGrad no_grad;
    if (slot.micro_batch != step.scope.micro_batch) {
      // Work that runs again reads the host's knowledge too.
      if (recording.forward->runs_host_code()) {
        slot.batch = step.batch;
      } else {
        copy_values(slot.batch, step.batch);
      }
      slot.micro_batch = step.scope.micro_batch;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) bring(recording.inputs[i], inputs[i]);
    wait_for(layer.parameters);
    recording.forward->replay();
  }
  std::vector<Tensor> outputs = aliases(recording.outputs);
  ops::attach(outputs, inputs, std::make_unique<Replay>(recording, layer), /*force=*/true);
  return outputs;
}

}  // namespace pentatron::training

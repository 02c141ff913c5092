// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/nn/unit_runner.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/tensor/batch.h"

namespace pentatron::training {

// Which memory each micro-batch of a rank's list takes, so that no two in flight share one. The
// first micro-batch of a chunk, whose backward comes first and overwrites gradients, has slot 0 for
// itself. Lists without kBackwardWeight.
struct LayerSlots {
  std::map<std::pair<int, int>, int> of;  // by chunk and micro-batch
  std::vector<int> count;                 // a chunk
};
[[nodiscard]] LayerSlots layer_slots(const pipeline_parallel::ActionList& list, int num_chunks);

// Forward and backward of each layer as CUDA graphs (--cuda-graph-impl local): what the host queues
// of a layer is two graphs instead of some hundred kernels, and all that stands between layers
// (sends, reductions, copies) goes on as ever. A layer is recorded once for each slot: a slot is
// what one micro-batch in flight needs, its batch, the inputs, outputs and gradients of the chunk's
// layers, and memory that their graphs share, since they are always replayed in the order in which
// they were recorded. Recording runs no kernel; it comes before a step's schedule, when no message
// is under way, after steps in which layers ran as ever and were looked at. A step of another shape
// runs as ever. On the CPU a replay runs the work again, into the same memory; tests use it.
class RecordedLayers final : public ops::UnitEventSink, public nn::UnitRunner {
 public:
  // `config` is resolved. `events`: who else hears of the units. All outlive this.
  RecordedLayers(const config::RunConfig& config, const PrecisionPolicy& policy,
                 nn::LocalStages& stages, Device device, ops::UnitEventSink& events);
  ~RecordedLayers() override;

  // Before the ledger and the gradients of a training step are begun: recording touches both.
  void begin_step(const pipeline_parallel::ActionList& list, const std::vector<Batch>& batches);
  // Layers that are recorded, each in every slot of its chunk.
  [[nodiscard]] std::int64_t num_recorded() const;

  [[nodiscard]] std::vector<Tensor> run(const std::vector<Tensor>& inputs, nn::StepContext& step,
                                        const nn::UnitBody& body) override;

  void on_forward_begin(int unit) override { events_.on_forward_begin(unit); }
  void on_forward_end(int unit) override { events_.on_forward_end(unit); }
  void on_backward_begin(int unit) override { events_.on_backward_begin(unit); }
  void on_backward_end(int unit) override { events_.on_backward_end(unit); }

 private:
  struct Layer;
  struct Recording;
  struct Slot;
  class Replay;

  void watch(Layer& layer, const std::vector<Tensor>& inputs, const nn::StepContext& step,
             const nn::UnitBody& body);
  [[nodiscard]] bool all_watched() const;
  void record(const LayerSlots& slots, const Batch& like);
  void record_slot(Slot& slot, int chunk);
  void record_forward(Slot& slot, Layer& layer, Recording* before);
  void record_backward(Slot& slot, Layer& layer, Recording* behind);

  PrecisionPolicy policy_;
  std::uint64_t seed_;
  std::int64_t warm_up_steps_;
  int num_chunks_;
  Device device_;
  ops::UnitEventSink& events_;
  std::map<int, Layer> layers_;           // by unit
  std::vector<std::vector<Slot>> slots_;  // of each chunk; empty: nothing is recorded
  std::string shape_;                     // of a recorded micro-batch, or of one that was watched
  std::int64_t num_steps_ = 0;
  LayerSlots now_;        // of the step that runs
  bool replays_ = false;  // in this step
};

}  // namespace pentatron::training

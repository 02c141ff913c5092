// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/device_queue.h"

namespace pentatron::training {

// Training steps as CUDA graphs (--cuda-graph-impl full_iteration). The first steps of a shape run
// as ever; then one is recorded, and later ones copy their micro-batches into its memory and replay
// it, so that the host queues one graph instead of thousands of kernels. A shape is all that the
// host decides by: numbers of micro-batches and rows, and where segments begin. Where kernels read
// the segments of packed documents from device memory alone, their boundaries are padded, and steps
// with other documents have one shape. Steps of shapes beyond the most that are recorded run as
// ever: nothing here changes a result.
class RecordedSteps final {
 public:
  // Queues a whole step on these batches, which lie on the device.
  using Launch = std::function<void(const std::vector<Batch>&)>;

  // `config` is resolved; on a GPU.
  RecordedSteps(const config::RunConfig& config, Device device);

  // How this step's boundaries are padded on their way to the device. Of a batch on the host.
  [[nodiscard]] SegmentPadding padding(const Batch& batch) const;
  // Runs the step in one of the ways above; true where it was replayed. The batches' memory is the
  // recorded step's from then on: nobody else may write there. What `launch` does besides queueing
  // work of the device is done when it is recorded, not when it is replayed.
  bool run(const std::vector<Batch>& batches, const Launch& launch);

  [[nodiscard]] std::int64_t num_recorded() const { return num_recorded_; }

 private:
  struct Shape {
    bool warm = false;  // a step of it has run
    std::unique_ptr<tensor::StepGraph> graph;
    std::vector<Batch> memory;  // what the recorded step reads
  };
  void record(Shape& shape, const std::vector<Batch>& batches, const Launch& launch);

  Device device_;
  std::int64_t warm_up_steps_;
  bool pads_documents_;
  std::int64_t num_steps_ = 0;
  std::int64_t num_recorded_ = 0;
  std::map<std::string, Shape> shapes_;
  const tensor::StepGraph* first_ = nullptr;  // whose memory the others share
};

// What decides of a step's shape, in words: equal keys, equal work of the host.
[[nodiscard]] std::string shape_key(const std::vector<Batch>& batches);

}  // namespace pentatron::training

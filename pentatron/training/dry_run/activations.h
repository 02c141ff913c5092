// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::training::dry_run {

// Rows of one micro-batch on a rank.
struct MicroBatchRows {
  std::int64_t tokens = 0;  // its share under context parallelism
  std::int64_t local = 0;   // between the leaves: of these its share under sequence parallelism
};
// Rows that cannot be shared evenly: kConfig.
[[nodiscard]] MicroBatchRows micro_batch_rows(const config::RunConfig& config);

// Dtype of what runs from layer to layer and from stage to stage.
[[nodiscard]] DType residual_dtype(const config::ModelConfig& model, const PrecisionPolicy& policy);

// Bytes that the ops of one stage save of one micro-batch, by the rules of their forwards: each
// storage once, weights and the batch left out. Of a moment: what lies there then.
struct StageActivations {
  std::int64_t layers = 0;   // from forward to backward, the final norm among them
  std::int64_t head = 0;     // of these the final norm's, gone when backward comes to the layers
  std::int64_t logits = 0;   // of the loss; gone then too
  std::int64_t rebuilt = 0;  // beside these while backward makes the largest piece again
  // Offloaded ones, which none of the above counts: in host memory, in blocks of powers of two; on
  // the device while two neighbouring layers' move, and after forward, of the last layer.
  std::int64_t on_host = 0;
  std::int64_t moving = 0;
  std::int64_t lingering = 0;
  // Of ops at work in backward, beside what they saved: of a moment in it, of the head's in the
  // loss, of the largest layer's.
  std::int64_t work = 0;
  std::int64_t head_work = 0;
  std::int64_t layer_work = 0;
};
// `plan`: the stage's parameters on the rank; `specs`: of all layers of the model.
[[nodiscard]] StageActivations stage_activations(const config::RunConfig& config,
                                                 const config::StagePlan& stage,
                                                 const nn::ParameterPlan& plan,
                                                 const std::vector<transformer::LayerSpec>& specs);

// The most that a rank keeps at a time when it runs its list; `chunks`: its stages. The parts are
// those of that moment.
[[nodiscard]] StageActivations peak_activations(const pipeline_parallel::ActionList& list,
                                                const std::vector<StageActivations>& chunks);

}  // namespace pentatron::training::dry_run

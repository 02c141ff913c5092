// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/config/distillation.h"
#include "pentatron/inference/stored_weights.h"
#include "pentatron/nn/stage.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::training {

// The model of --export-kd-teacher-load and what is learnt from it (--export-kd-cfg), read before
// anything of the student is built.
class Teacher final {
 public:
  // `student` is resolved, its vocabulary too. kConfig, kCheckpoint or kIo that name the option for
  // what is not there and for what does not fit the student: other vocabularies, shorter contexts,
  // layers that --export-kd-cfg names and a model has not.
  explicit Teacher(const config::RunConfig& student);

  // The student's stage, which is whole, with the teacher beside it: in training its loss is
  // parallel_layers::distilled_loss(). The teacher lies on the same ranks and is split as the
  // student is; it computes in the student's dtypes, without dropout and gradients. Its weights are
  // no parameters of the stage, so no optimizer, checkpoint, norm or count sees them. Reads them;
  // collective over the world. Once.
  [[nodiscard]] std::unique_ptr<nn::Stage> beside(std::unique_ptr<nn::Stage> student,
                                                  comm::ParallelContext& context,
                                                  const parallel_layers::LeafContext& leaf_context);

  // For the screen, at start: " > learns from ...".
  [[nodiscard]] std::string line() const;
  // What to warn of where the run's tokenizer is not the one that the teacher was trained with, as
  // far as that is recorded: distributions are compared id by id. Empty: nothing.
  [[nodiscard]] std::string tokenizer_warning(const std::string& identity) const;

 private:
  std::string folder_;
  config::DistillationForm form_;
  inference::StoredWeights stored_;
  config::RunConfig config_;  // in the student's layout and precision
};

}  // namespace pentatron::training

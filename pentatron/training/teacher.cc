// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/teacher.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/config/validate.h"
#include "pentatron/models/registry.h"
#include "pentatron/parallel_layers/distilled_loss.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

constexpr const char* kOption = "--export-kd-teacher-load";
constexpr const char* kFinalNorm = "decoder.final_layernorm";

// The student is its one child: only its parameters are the stage's.
class DistilledStage final : public nn::Stage {
 public:
  DistilledStage(std::unique_ptr<nn::Stage> student, std::unique_ptr<nn::LocalStages> teacher,
                 config::DistillationForm form)
      : nn::Stage(parallel_layers::distillation_losses(form)),
        student_(add_child(std::move(student))),
        teacher_(std::move(teacher)),
        form_(std::move(form)) {}

  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& step) override {
    if (step.phase != nn::Phase::kTrain || step.output != nn::StageOutput::kLoss) {
      return student_.forward(input, step);
    }
    nn::HiddenStates teacher(form_.teacher_layers()), student(form_.student_layers());
    const parallel_layers::Distillation distillation{.form = form_,
                                                     .teacher_logits_tv = teach(step, teacher),
                                                     .teacher = teacher,
                                                     .student = student};
    step.hidden = &student;
    step.distillation = &distillation;
    nn::Bundle losses = student_.forward(input, step);
    step.hidden = nullptr;
    step.distillation = nullptr;
    return losses;
  }
  nn::BundleSpec input_spec(const Batch& batch) const override {
    return student_.input_spec(batch);
  }
  nn::BundleSpec output_spec(const Batch& batch) const override {
    return student_.output_spec(batch);
  }
  std::vector<nn::Unit> units() override { return student_.units(); }

 private:
  // The teacher's logits; what it leaves on the way goes into `hidden`.
  Tensor teach(const nn::StepContext& step, nn::HiddenStates& hidden) {
    const tensor::NoGrad no_grad;
    nn::StepContext own{.batch = step.batch,
                        .policy = step.policy,
                        .seed = step.seed,
                        .phase = nn::Phase::kEvaluate,
                        .output = nn::StageOutput::kTeacherLogits,
                        .hidden = &hidden};
    return teacher_->at(0).forward({}, own).at(0).tensor;
  }

  nn::Stage& student_;
  std::unique_ptr<nn::LocalStages> teacher_;  // whole, one stage
  config::DistillationForm form_;
};

// The teacher's model where its student stands.
config::RunConfig in_layout_of(const config::RunConfig& student, config::RunConfig config) {
  config.parallel = student.parallel;
  config.training.precision = student.training.precision;
  config::ModelConfig& model = config.model;
  model.seq_length = student.model.seq_length;
  model.recompute_granularity.clear();  // nothing is kept for a backward
  model.fp8.clear();
  // Shapes in the checkpoint are the true ones, unless padding counts.
  if (!model.pad_vocab_in_softmax) model.padded_vocab_size = student.model.padded_vocab_size;
  return config;
}

void check_fits(const config::ModelConfig& student, const config::ModelConfig& teacher,
                const std::string& folder) {
  PENTATRON_CHECK(
      teacher.vocab_size == student.vocab_size, kConfig,
      "{} {}: the teacher's vocabulary has {} ids, the student's {}: both need the same "
      "tokenizer, and --vocab-size {} if the teacher has more rows than its tokenizer "
      "has tokens",
      kOption, folder, teacher.vocab_size, student.vocab_size, teacher.vocab_size);
  const bool padding_counts = teacher.pad_vocab_in_softmax || student.pad_vocab_in_softmax;
  PENTATRON_CHECK(teacher.pad_vocab_in_softmax == student.pad_vocab_in_softmax &&
                      (!padding_counts || teacher.padded_vocab_size == student.padded_vocab_size),
                  kConfig,
                  "{} {}: the teacher's softmax goes over {} rows{}, the student's over {}{}: give "
                  "the student the same --pad-vocab-in-softmax and --padded-vocab-size",
                  kOption, folder,
                  padding_counts && teacher.pad_vocab_in_softmax ? teacher.padded_vocab_size
                                                                 : teacher.vocab_size,
                  teacher.pad_vocab_in_softmax ? " with padding" : "",
                  student.pad_vocab_in_softmax ? student.padded_vocab_size : student.vocab_size,
                  student.pad_vocab_in_softmax ? " with padding" : "");
  PENTATRON_CHECK(teacher.max_position_embeddings >= student.seq_length, kConfig,
                  "{} {}: the teacher reads {} positions (--max-position-embeddings), the student "
                  "sequences of {}: set --seq-length to at most {}",
                  kOption, folder, teacher.max_position_embeddings, student.seq_length,
                  teacher.max_position_embeddings);
}

// What a run of layers leaves on the way is made again in backward, where nothing asks for it.
void check_recompute(const config::DistillationForm& form, const config::ModelConfig& student) {
  if (config::recompute(student) != config::Recompute::kLayers) return;
  for (const std::string& layer : form.student_layers()) {
    PENTATRON_CHECK(layer == kFinalNorm, kConfig,
                    "intermediate_layer_pairs compares {} of the student, whose layers "
                    "--recompute-granularity full makes again in backward: compare {}, or use "
                    "--recompute-granularity selective",
                    layer, kFinalNorm);
  }
}

}  // namespace

Teacher::Teacher(const config::RunConfig& student)
    : folder_(student.checkpoint.export_kd_teacher_load),
      form_(config::read_distillation(student.checkpoint.export_kd_cfg)),
      stored_(inference::open_weights(folder_, 0, kOption)) {
  check_fits(student.model, stored_.config.model, folder_);
  config_ = in_layout_of(student, stored_.config);
  const std::string label = student.checkpoint.export_kd_cfg.empty()
                                ? std::string(kOption)
                                : "--export-kd-cfg " + student.checkpoint.export_kd_cfg;
  config::check_layers(form_, student.model, config_.model, label);
  check_recompute(form_, student.model);
  try {
    config::resolve(config_, config::Purpose::kModel);
    stored_.check(config_.model);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{} {}: {}", kOption, folder_, error.what()), __FILE__,
                __LINE__);
  }
}

std::unique_ptr<nn::Stage> Teacher::beside(std::unique_ptr<nn::Stage> student,
                                           comm::ParallelContext& context,
                                           const parallel_layers::LeafContext& leaf_context) {
  const config::ModelConfig& model = config_.model;
  const std::vector<config::StagePlan> plans = config::plan_pipeline(model, config_.parallel);
  PENTATRON_CHECK(plans.size() == 1, kInternal, "a teacher in {} stages", plans.size());
  auto stages = std::make_unique<nn::LocalStages>();
  stages->add(models::make_stage(models::model_kind(model), model, leaf_context, plans.front()));
  stored_.read_into(*stages, context);
  stored_.checkpoint.reset();
  stored_.hugging_face.reset();
  return std::make_unique<DistilledStage>(std::move(student), std::move(stages), form_);
}

std::string Teacher::line() const {
  const config::ModelConfig& model = config_.model;
  return fmt::format(" > learns from {}: {} layers of {} channels", folder_, model.num_layers,
                     model.hidden_size);
}

std::string Teacher::tokenizer_warning(const std::string& identity) const {
  if (stored_.tokenizer.empty() || identity.empty() || stored_.tokenizer == identity) return "";
  return fmt::format(
      "{} {}: the teacher was trained with other tokenizer files; its distributions mean something "
      "only if the ids are the same",
      kOption, folder_);
}

}  // namespace pentatron::training

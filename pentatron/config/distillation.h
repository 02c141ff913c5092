// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

// What --export-kd-cfg says: a YAML file with the keys of Megatron-LM's distillation
// (modelopt.torch.distill.plugins.megatron), all of them optional,
//   logit_layers: ["output_layer", "output_layer"]
//   intermediate_layer_pairs: [[student's module, teacher's module], ...], or with a third word,
//                             "cosine" (the default) or "mse"
//   skip_lm_loss: true            kd_loss_scale: 1.0
//   kd_loss_alpha: 1.0            (the newer spelling of the two before)
//   logit_kl_temperature: 1.0
namespace pentatron::config {

struct DistillationForm {
  struct Pair {
    std::string student;
    std::string teacher;
    bool mean_squares = false;  // else the cosine
  };
  std::vector<Pair> pairs;
  // The student's own loss counts too: with a share of 1 - alpha beside alpha of the teacher's
  // losses, or, without alpha, beside the teacher's at `scale` times its own size.
  bool lm_loss = false;
  std::optional<double> alpha;
  double scale = 1.0;
  double temperature = 1.0;

  [[nodiscard]] std::vector<std::string> student_layers() const;
  [[nodiscard]] std::vector<std::string> teacher_layers() const;
};

// kConfig naming file, line and key for what is no such file: unknown keys, other types, values out
// of range, modules that no model has, keys that contradict each other. An empty text: the
// defaults.
[[nodiscard]] DistillationForm parse_distillation(const std::string& text, std::string_view label);
// Of at most 1 MiB; kIo when it cannot be read. An empty path: the defaults.
[[nodiscard]] DistillationForm read_distillation(const std::filesystem::path& path);

// That the pairs' layers are there in both models and as wide as each other: kConfig.
void check_layers(const DistillationForm& form, const ModelConfig& student,
                  const ModelConfig& teacher, std::string_view label);

[[nodiscard]] inline bool distils(const RunConfig& config) {
  return !config.checkpoint.export_kd_teacher_load.empty();
}
// What distillation does not go with.
void check_distillation(const RunConfig& config, Problems& problems);

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/distillation.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/config/choices.h"

namespace pentatron::config {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxPairs = 1000;
constexpr const char* kLogits = "output_layer";
constexpr std::string_view kFinalNorm = "decoder.final_layernorm";
constexpr std::string_view kLayer = "decoder.layers.";
constexpr const char* kKnownLayers =
    "decoder.final_layernorm, decoder.layers.N, decoder.layers.N.input_layernorm and "
    "decoder.layers.N.pre_mlp_layernorm";
constexpr const char* kKnownKeys =
    "intermediate_layer_pairs, logit_layers, skip_lm_loss, kd_loss_scale, kd_loss_alpha and "
    "logit_kl_temperature";

// The layer that a module's name is about; -1: the final norm; nothing: no such module.
std::optional<std::int64_t> layer_of(std::string_view name) {
  if (name == kFinalNorm) return -1;
  if (!name.starts_with(kLayer)) return std::nullopt;
  name.remove_prefix(kLayer.size());
  const std::string_view digits = name.substr(0, name.find('.'));
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  if (error != std::errc{} || end != digits.data() + digits.size() || layer < 0 ||
      (digits.size() > 1 && digits[0] == '0')) {
    return std::nullopt;
  }
  name.remove_prefix(digits.size());
  const bool known = name.empty() || name == ".input_layernorm" || name == ".pre_mlp_layernorm";
  return known ? std::optional(layer) : std::nullopt;
}

// One file's values, each asked for by its key.
class Reader final {
 public:
  explicit Reader(std::string_view label) : label_(label) {}

  void read(const YAML::Node& root) {
    PENTATRON_CHECK(root.IsMap(), kConfig, "{}: expected a mapping with {}", label_, kKnownKeys);
    for (const auto& entry : root) {
      at_ = entry.first.Mark().line + 1;
      key_ = entry.first.IsScalar() ? entry.first.Scalar() : "";
      PENTATRON_CHECK(std::find(seen_.begin(), seen_.end(), key_) == seen_.end(), kConfig,
                      "{}:{}: {} stands there twice", label_, at_, quoted_for_message(key_));
      seen_.push_back(key_);
      read_value(entry.second);
    }
    finish();
  }

  [[nodiscard]] const DistillationForm& form() const { return form_; }

 private:
  void read_value(const YAML::Node& node) {
    if (key_ == "intermediate_layer_pairs") return read_pairs(node);
    if (key_ == "logit_layers") return read_logit_layers(node);
    if (key_ == "skip_lm_loss") {
      skip_ = flag(node);
    } else if (key_ == "kd_loss_scale") {
      scale_ = number(node, "above 0", [](double x) { return x > 0; });
    } else if (key_ == "kd_loss_alpha") {
      form_.alpha = number(node, "from 0 to 1", [](double x) { return x >= 0 && x <= 1; });
    } else if (key_ == "logit_kl_temperature") {
      form_.temperature = number(node, "above 0", [](double x) { return x > 0; });
    } else {
      PENTATRON_THROW(kConfig, "{}:{}: unknown key {}; known are {}", label_, at_,
                      quoted_for_message(key_), kKnownKeys);
    }
  }

  [[noreturn]] void refuse(const YAML::Node& node, std::string_view expected) const {
    const std::string came = node.IsScalar() ? quoted_for_message(node.Scalar())
                             : node.IsNull() ? "nothing"
                                             : "a list or a mapping";
    PENTATRON_THROW(kConfig, "{}:{}: {} is {}, expected {}", label_, at_, key_, came, expected);
  }

  bool flag(const YAML::Node& node) const {
    bool value = false;
    if (!node.IsScalar() || node.Tag() == "!" || !YAML::convert<bool>::decode(node, value)) {
      refuse(node, "true or false");
    }
    return value;
  }

  template <typename Range>
  double number(const YAML::Node& node, std::string_view range, const Range& in_range) const {
    double value = 0;
    const bool is_number =
        node.IsScalar() && node.Tag() != "!" && YAML::convert<double>::decode(node, value);
    if (!is_number || !std::isfinite(value) || !in_range(value)) {
      refuse(node, fmt::format("a number {}", range));
    }
    return value;
  }

  void read_logit_layers(const YAML::Node& node) const {
    const bool usual = node.IsSequence() && node.size() == 2 && node[0].IsScalar() &&
                       node[1].IsScalar() && node[0].Scalar() == kLogits &&
                       node[1].Scalar() == kLogits;
    if (!usual) refuse(node, fmt::format("[\"{}\", \"{}\"]", kLogits, kLogits));
  }

  void read_pairs(const YAML::Node& node) {
    if (!node.IsSequence()) refuse(node, "a list of pairs of module names");
    PENTATRON_CHECK(node.size() <= kMaxPairs, kConfig,
                    "{}:{}: {} has {} pairs, at most {} are read", label_, at_, key_, node.size(),
                    kMaxPairs);
    for (const YAML::Node& entry : node) {
      at_ = entry.Mark().line + 1;
      if (!entry.IsSequence() || entry.size() < 2 || entry.size() > 3) {
        refuse(entry, "pairs of the student's and the teacher's module, or these and a loss");
      }
      DistillationForm::Pair pair{.student = module_name(entry[0]),
                                  .teacher = module_name(entry[1])};
      if (entry.size() == 3) {
        const std::string loss = entry[2].IsScalar() ? entry[2].Scalar() : "";
        if (loss != "cosine" && loss != "mse") refuse(entry[2], "cosine or mse as third word");
        pair.mean_squares = loss == "mse";
      }
      form_.pairs.push_back(std::move(pair));
    }
  }

  std::string module_name(const YAML::Node& node) const {
    if (!node.IsScalar()) refuse(node, "names of modules");
    PENTATRON_CHECK(layer_of(node.Scalar()).has_value(), kConfig,
                    "{}:{}: {} names the module {}; known are {}", label_, at_, key_,
                    quoted_for_message(node.Scalar()), kKnownLayers);
    return node.Scalar();
  }

  void finish() {
    const bool older = skip_.has_value() || scale_.has_value();
    PENTATRON_CHECK(!form_.alpha || !older, kConfig,
                    "{}: kd_loss_alpha is the newer spelling of skip_lm_loss and kd_loss_scale: "
                    "drop one of the two",
                    label_);
    form_.lm_loss = form_.alpha ? *form_.alpha < 1.0 : !skip_.value_or(true);
    form_.scale = scale_.value_or(1.0);
  }

  std::string label_;
  DistillationForm form_;
  std::optional<bool> skip_;
  std::optional<double> scale_;
  int at_ = 0;  // line
  std::string key_;
  std::vector<std::string> seen_;
};

void check_layer(const std::string& name, std::string_view whose, const ModelConfig& model,
                 std::string_view label) {
  const std::int64_t layer = layer_of(name).value_or(-1);
  PENTATRON_CHECK(layer < model.num_layers, kConfig,
                  "{}: intermediate_layer_pairs names {}, but the {} has {} layers, 0 to {}", label,
                  name, whose, model.num_layers, model.num_layers - 1);
}

}  // namespace

std::vector<std::string> DistillationForm::student_layers() const {
  std::vector<std::string> names;
  for (const Pair& pair : pairs) names.push_back(pair.student);
  return names;
}

std::vector<std::string> DistillationForm::teacher_layers() const {
  std::vector<std::string> names;
  for (const Pair& pair : pairs) names.push_back(pair.teacher);
  return names;
}

DistillationForm parse_distillation(const std::string& text, std::string_view label) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return {};
    Reader reader(label);
    reader.read(root);
    return reader.form();
  } catch (const YAML::Exception& error) {
    PENTATRON_THROW(kConfig, "{}:{}: not YAML or JSON: {}", label, error.mark.line + 1, error.msg);
  }
}

DistillationForm read_distillation(const std::filesystem::path& path) {
  if (path.empty()) return {};
  return parse_distillation(read_text_file(path, kMaxFileBytes),
                            fmt::format("--export-kd-cfg {}", path.string()));
}

void check_layers(const DistillationForm& form, const ModelConfig& student,
                  const ModelConfig& teacher, std::string_view label) {
  if (form.pairs.empty()) return;
  for (const DistillationForm::Pair& pair : form.pairs) {
    check_layer(pair.student, "student", student, label);
    check_layer(pair.teacher, "teacher", teacher, label);
  }
  PENTATRON_CHECK(student.hidden_size == teacher.hidden_size, kConfig,
                  "{}: intermediate_layer_pairs compares hidden states of {} channels "
                  "(--hidden-size) with the teacher's {}: drop the pairs, or take a student as "
                  "wide as its teacher",
                  label, student.hidden_size, teacher.hidden_size);
}

void check_distillation(const RunConfig& config, Problems& problems) {
  if (!distils(config)) return;
  const auto refuse = [&](const std::string& what, std::string_view remedy) {
    problems.add(fmt::format("--export-kd-teacher-load does not go with {}: {}", what, remedy));
  };
  const ParallelConfig& parallel = config.parallel;
  const auto refuse_size = [&](const char* option, std::int64_t size) {
    if (size <= 1) return;
    refuse(fmt::format("{} {}", option, size),
           "student and teacher stand on the same ranks, which hold all of both models' layers; "
           "set it to 1 and --tensor-model-parallel-size higher");
  };
  refuse_size("--pipeline-model-parallel-size", parallel.pipeline_model_parallel_size);
  refuse_size("--context-parallel-size", parallel.context_parallel_size);
  if (recording(config.training) != Recording::kNone) {
    refuse("--cuda-graph-impl " + config.training.cuda_graph_impl, "drop one of the two");
  }
  if (loss_mean(config.training) == LossMean::kMicroBatches) {
    refuse("--loss-mean micro-batches",
           "its losses are means over the tokens of the global batch; drop one of the two");
  }
  if (!config.model.fp8.empty()) {
    refuse("--fp8-format " + config.model.fp8, "drop one of the two");
  }
}

}  // namespace pentatron::config

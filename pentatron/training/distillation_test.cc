// SPDX-License-Identifier: Apache-2.0
// A student and its teacher: what is trained on, in every layout, and that the teacher stays what
// it is.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/comm/group.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/teacher.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
namespace fs = std::filesystem;

constexpr const char* kTotal = "total loss";
constexpr const char* kLogits = "logits distillation loss";
constexpr const char* kHidden = "intermediate distillation loss";
constexpr const char* kFinalNorms =
    "intermediate_layer_pairs: [[decoder.final_layernorm, decoder.final_layernorm]]\n";
// Of every kind of hidden state, with both distances.
constexpr const char* kManyLayers =
    "intermediate_layer_pairs:\n"
    "- [decoder.final_layernorm, decoder.final_layernorm]\n"
    "- [decoder.layers.0, decoder.layers.1, mse]\n"
    "- [decoder.layers.1.input_layernorm, decoder.layers.2.input_layernorm]\n"
    "- [decoder.layers.1.pre_mlp_layernorm, decoder.layers.2.pre_mlp_layernorm]\n";

// A trained model of another depth, other weights, with dropout of its own; as wide as the
// student, and, in the second one, wider.
class Teachers {
 public:
  Teachers() {
    make("deep", [](config::RunConfig& c) { c.model.num_layers = 3; });
    make("wide", [](config::RunConfig& c) { c.model.hidden_size = 48; });
  }
  [[nodiscard]] std::string folder(const std::string& name) const {
    return (folder_.path() / name).string();
  }

 private:
  void make(const std::string& name, const ChangeConfig& change) {
    const config::RunConfig config = tiny_config({}, [&](config::RunConfig& c) {
      change(c);
      c.model.seed = 77;
      c.training.precision = "fp64";
      c.checkpoint.save = folder(name);
      c.checkpoint.save_interval = 4;
    });
    with_engine(config, [&](Engine& engine) {
      train_steps(engine, 0, 4);
      ::testing::internal::CaptureStdout();
      save_engine(engine, state_after(config, 4), -1);
      static_cast<void>(::testing::internal::GetCapturedStdout());
    });
  }
  TempFolder folder_;
};
const Teachers& teachers() {
  static const Teachers kTeachers;
  return kTeachers;
}

// A file of --export-kd-cfg for as long as this lives.
class FormFile {
 public:
  explicit FormFile(const std::string& text) { std::ofstream(path()) << text; }
  [[nodiscard]] std::string path() const { return (folder_.path() / "kd.yaml").string(); }

 private:
  TempFolder folder_;
};

config::RunConfig student(const Layout& layout, const FormFile& form,
                          const ChangeConfig& change = {}) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.checkpoint.export_kd_teacher_load = teachers().folder("deep");
    c.checkpoint.export_kd_cfg = form.path();
    if (change) change(c);
  });
}

struct Learnt {
  StepResult result;
  Tensors gradients;
};
// One step's losses and gradients.
Learnt learnt(const config::RunConfig& config) {
  Learnt learnt;
  with_engine(config, [&](Engine& engine) {
    const StepResult result = engine.forward_backward(micro_batches(engine, 1));
    Tensors gradients = engine.gather_gradients();
    if (engine.context().world().rank() == 0) learnt = {result, std::move(gradients)};
  });
  return learnt;
}
double value(const StepResult& result, const char* name) {
  const std::optional<double> found = result.scalars.find(name);
  EXPECT_TRUE(found.has_value()) << name;
  return found.value_or(std::nan(""));
}

TEST(Distillation, TheStudentComesNearerToItsTeacher) {
  const FormFile form(kFinalNorms);
  with_engine(student({}, form, [](auto& c) { c.model.hidden_dropout = 0; }), [&](Engine& engine) {
    std::vector<double> logits, hidden;
    for (int step = 0; step < 30; ++step) {
      const StepResult result = engine.train_step(micro_batches(engine, step), 0.01, 0);
      logits.push_back(value(result, kLogits));
      hidden.push_back(value(result, kHidden));
    }
    EXPECT_LT(logits.back(), 0.5 * logits.front());
    EXPECT_LT(hidden.back(), 0.7 * hidden.front());
  });
}

// Logits of a model on a batch, fp64 [tokens, vocabulary], and the named hidden state.
struct Forward {
  Tensor logits_tv;
  Tensor hidden_th;
};
Forward forward(nn::Stage& stage, const Batch& batch, const PrecisionPolicy& policy) {
  nn::HiddenStates hidden({"decoder.final_layernorm"});
  const tensor::NoGrad no_grad;
  nn::StepContext step{.batch = batch,
                       .policy = policy,
                       .phase = nn::Phase::kEvaluate,
                       .output = nn::StageOutput::kLogits,
                       .hidden = &hidden};
  const Tensor logits = stage.forward({}, step).at(0).tensor;
  return {logits, hidden.at("decoder.final_layernorm")};
}

// The step's numbers against a plain writing with the library's functions on both models' logits.
TEST(Distillation, LossesEqualThePlainWriting) {
  struct Case {
    const char* text;
    bool hidden;
    double temperature;
  };
  for (const Case& c : {Case{"", false, 1.0}, Case{"logit_kl_temperature: 2.5", false, 2.5},
                        Case{kFinalNorms, true, 1.0},
                        Case{"{skip_lm_loss: false, kd_loss_scale: 3, intermediate_layer_pairs: "
                             "[[decoder.final_layernorm, decoder.final_layernorm]]}",
                             true, 1.0},
                        Case{"{kd_loss_alpha: 0.3, intermediate_layer_pairs: "
                             "[[decoder.final_layernorm, decoder.final_layernorm]]}",
                             true, 1.0}}) {
    SCOPED_TRACE(c.text);
    const FormFile file(c.text);
    const config::DistillationForm form = config::read_distillation(file.path());
    const config::RunConfig config = student({}, file, [](config::RunConfig& run) {
      run.model.hidden_dropout = run.model.attention_dropout = 0;
    });
    const inference::LoadedModel teacher = inference::load_model(teachers().folder("deep"));
    with_engine(config, [&](Engine& engine) {
      const std::vector<Batch> batches = micro_batches(engine, 1);
      const StepResult result = engine.forward_backward(batches);
      double plain = 0, logits = 0, hidden = 0, total = 0, count = 0;
      for (const Batch& batch : batches) {
        const Forward own = forward(engine.stages().at(0), batch, engine.policy());
        const Forward its = forward(teacher.stages->at(0), batch, engine.policy());
        const Tensor log_p = own.logits_tv.div(c.temperature).log_softmax(-1);
        const Tensor log_q = its.logits_tv.div(c.temperature).log_softmax(-1);
        const Tensor mask = batch.loss_mask().to(DType::Double);
        const Tensor kl = log_q.exp().mul(log_q.sub(log_p)).sum(1).mul(mask);
        const Tensor nll = own.logits_tv.log_softmax(-1)
                               .gather(1, batch.labels().unsqueeze(1))
                               .squeeze(1)
                               .neg()
                               .mul(mask);
        const auto length = [](const Tensor& t) { return t.pow(2).sum(IntList{1}).sqrt(); };
        const Tensor cosine = own.hidden_th.mul(its.hidden_th)
                                  .sum(IntList{1})
                                  .div(length(own.hidden_th).mul(length(its.hidden_th)));
        const Tensor distance = cosine.neg().add(1.0).mul(mask);
        for (std::int64_t s = 0; s < batch.num_tokens() / kSequence; ++s) {
          const auto sum = [s](const Tensor& t) {
            return t.narrow(0, s * kSequence, kSequence).sum().item<double>();
          };
          const double l = sum(nll), k = sum(kl), h = sum(distance);
          const double both = c.hidden && h > 0 ? 2 * k : k;  // scaled to the divergence
          plain += l;
          logits += k;
          hidden += h;
          if (!form.lm_loss) {
            total += both;
          } else if (form.alpha) {
            total += (1 - *form.alpha) * l + *form.alpha * both;
          } else {
            total += l + form.scale * l;
          }
        }
        count += mask.sum().item<double>();
      }
      EXPECT_NEAR(value(result, "lm loss"), plain / count, 1e-11);
      EXPECT_NEAR(value(result, kLogits), logits / count, 1e-11);
      EXPECT_NEAR(value(result, kTotal), total / count, 1e-11);
      if (c.hidden) {
        EXPECT_NEAR(value(result, kHidden), hidden / count, 1e-11);
      } else {
        EXPECT_FALSE(result.scalars.find(kHidden).has_value());
      }
    });
  }
}

// Along a direction in the space of all weights, by differences of the parts. With one sequence a
// step the total's slope is that of the parts, times what balances them, which is no variable.
TEST(Distillation, GradientsAreTheSlopesOfTheLosses) {
  using Case = std::pair<std::string, double>;  // and what caps the student's logits
  for (const auto& [text, cap] :
       {Case{kManyLayers, 0}, Case{"logit_kl_temperature: 1.7", 0},
        Case{"{skip_lm_loss: false, logit_kl_temperature: 1.7}", 0.5},
        Case{kManyLayers + std::string("skip_lm_loss: false\nkd_loss_scale: 0.5\n"), 0},
        Case{kManyLayers + std::string("kd_loss_alpha: 0.3\n"), 0}}) {
    SCOPED_TRACE(text);
    const FormFile file(text);
    const config::DistillationForm form = config::read_distillation(file.path());
    const config::RunConfig config = student({}, file, [cap = cap](config::RunConfig& run) {
      if (cap > 0) run.model.final_logit_softcapping = cap;
      run.training.global_batch_size = run.training.micro_batch_size = 1;
    });
    with_engine(config, [&](Engine& engine) {
      const std::vector<Batch> batches = micro_batches(engine, 1);
      const StepResult here = engine.forward_backward(batches);
      const Tensors gradients = engine.gather_gradients(), weights = engine.gather_parameters();
      Tensors direction;
      double slope = 0;
      std::uint64_t stream = 0;
      for (const auto& [name, weight] : weights) {
        Tensor& d = direction[name] = tensor::empty(weight.sizes(), DType::Double);
        auto* values = d.data_ptr<double>();
        ++stream;
        for (std::int64_t i = 0; i < d.numel(); ++i) {
          values[i] = philox_uniform(9, stream, static_cast<std::uint64_t>(i)) - 0.5;
        }
        slope += d.mul(gradients.at(name)).sum().item<double>();
      }
      const auto at = [&](double step) {
        engine.optimizer().fill([&](nn::Parameter& parameter) {
          for (const nn::ShardPart& part : parameter.spec().parts) {
            const Tensor moved = weights.at(part.name).add(direction.at(part.name).mul(step));
            nn::part_view(parameter.data(), part).copy_(moved);
          }
        });
        return engine.forward_backward(batches);
      };
      constexpr double kStep = 1e-5;
      const StepResult ahead = at(kStep), behind = at(-kStep);
      const auto slope_of = [&](const char* name) {
        return (value(ahead, name) - value(behind, name)) / (2 * kStep);
      };
      const bool pairs = !form.pairs.empty();
      double expected = slope_of(kLogits);
      double both = value(here, kLogits);
      if (pairs) {
        expected += slope_of(kHidden) * value(here, kLogits) / value(here, kHidden);
        both *= 2;
      }
      if (form.alpha) {
        expected = (1 - *form.alpha) * slope_of("lm loss") + *form.alpha * expected;
      } else if (form.lm_loss) {
        expected = slope_of("lm loss") + form.scale * value(here, "lm loss") / both * expected;
      }
      EXPECT_NEAR(slope, expected, 1e-6 * std::abs(expected));
      EXPECT_GT(std::abs(expected), 1e-2);
    });
  }
}

TEST(Distillation, EveryLayoutLearnsTheSame) {
  const FormFile form(std::string(kManyLayers) + "skip_lm_loss: false\nkd_loss_scale: 2.0\n");
  const Learnt one = learnt(student({}, form));
  struct Case {
    const char* name;
    Layout layout;
    ChangeConfig change;
  };
  const Case cases[] = {
      {"tp", {.tp = 2}, {}},
      {"sp", {.tp = 2}, [](auto& c) { c.parallel.sequence_parallel = true; }},
      {"tp4 sp", {.tp = 4}, [](auto& c) { c.parallel.sequence_parallel = true; }},
      {"dp", {.dp = 2}, {}},
      {"dp sharded", {.dp = 2, .sharded = true}, {}},
      {"tp dp sharded sp",
       {.tp = 2, .dp = 2, .sharded = true},
       [](auto& c) { c.parallel.sequence_parallel = true; }},
      {"one sequence at a time", {}, [](auto& c) { c.training.micro_batch_size = 1; }},
      {"all at once", {}, [](auto& c) { c.training.micro_batch_size = kGlobalBatch; }},
      {"recompute of modules", {}, [](auto& c) { c.model.recompute_granularity = "selective"; }}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Learnt other = learnt(student(c.layout, form, c.change));
    for (const char* name : {"lm loss", kTotal, kLogits, kHidden, "grad norm"}) {
      const double expected =
          name == std::string("grad norm") ? one.result.grad_norm : value(one.result, name);
      const double found =
          name == std::string("grad norm") ? other.result.grad_norm : value(other.result, name);
      EXPECT_NEAR(found, expected, 1e-10 * std::max(1.0, std::abs(expected))) << name;
    }
    expect_equal(other.gradients, one.gradients, "gradient");
  }
}

TEST(Distillation, RecomputedLayersLearnTheSame) {
  const FormFile form(kFinalNorms);
  const Learnt one = learnt(student({}, form));
  const Learnt again = learnt(student({}, form, [](auto& c) {
    c.model.recompute_granularity = "full";
    c.model.recompute_method = "uniform";
    c.model.recompute_num_layers = 1;
  }));
  EXPECT_EQ(first_difference(again.gradients, one.gradients), "");
}

TEST(Distillation, FormsChangeWhatIsTrained) {
  const FormFile usual("");
  const Tensors plain = learnt(student({}, usual)).gradients;
  for (const std::string& text :
       {std::string(kFinalNorms), std::string("skip_lm_loss: false"),
        std::string("{skip_lm_loss: false, kd_loss_scale: 2}"), std::string("kd_loss_alpha: 0.5"),
        std::string("logit_kl_temperature: 2")}) {
    const FormFile form(text);
    EXPECT_GT(worst_difference(learnt(student({}, form)).gradients, plain), 1e-2) << text;
  }
}

// A wider teacher: distributions alone can be compared.
TEST(Distillation, ATeacherOfAnotherWidthTeachesItsDistribution) {
  const FormFile form("");
  const auto wide = [](auto& c) {
    c.checkpoint.export_kd_teacher_load = teachers().folder("wide");
  };
  const Learnt one = learnt(student({}, form, wide));
  EXPECT_GT(value(one.result, kLogits), 1e-3);
  const Learnt two = learnt(student({.tp = 2}, form, wide));
  expect_equal(two.gradients, one.gradients, "gradient");
}

std::string hash_of(const std::string& folder) {
  const checkpoint::Found found = checkpoint::find_checkpoint(folder, 0);
  checkpoint::CheckpointReader reader(found.folder);
  return checkpoint::state_hash(reader);
}

// What a run counts, shows and saves is the student; evaluations are the student's.
TEST(Distillation, TheTeacherIsNoPartOfTheStudent) {
  const FormFile form(kFinalNorms);
  const std::string before = hash_of(teachers().folder("deep"));
  config::RunConfig with = student({}, form), without = with;
  without.checkpoint.export_kd_teacher_load.clear();
  const auto facts = [](const config::RunConfig& config, bool trains) {
    std::vector<std::string> names;
    std::int64_t parameters = 0;
    double norm = 0, loss = 0;
    with_engine(config, [&](Engine& engine) {
      parameters = engine.num_local_parameters();
      norm = engine.optimizer().parameter_norm();
      loss = engine.evaluate(micro_batches(engine, 3)).loss();
      for (const optimizer::StateSlice& slice : engine.state_slices(true)) {
        names.push_back(slice.kind + "/" + slice.part->name);
      }
      if (trains) train_steps(engine, 0, 2);
    });
    return std::tuple{names, parameters, norm, loss};
  };
  EXPECT_EQ(facts(with, true), facts(without, false));
  EXPECT_EQ(hash_of(teachers().folder("deep")), before);
}

std::string refusal(const config::RunConfig& config, ErrorKind kind = ErrorKind::kConfig) {
  try {
    with_engine(config, [](Engine&) {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

TEST(Distillation, WhatDoesNotFitIsRefused) {
  const FormFile form("");
  const auto said = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  config::RunConfig other_words = student({}, form);
  other_words.model.vocab_size = 60;
  said(refusal(other_words), {"--export-kd-teacher-load", "61 ids", "60", "--vocab-size 61"});
  config::RunConfig padded = student({}, form);
  padded.model.pad_vocab_in_softmax = true;
  said(refusal(padded), {"over 61 rows", "over 64 with padding", "--pad-vocab-in-softmax"});
  said(refusal(student(
           {}, form,
           [](auto& c) { c.model.seq_length = c.model.max_position_embeddings = 2 * kSequence; })),
       {"reads 16 positions", "--seq-length to at most 16"});
  said(refusal(student({}, form,
                       [](auto& c) { c.checkpoint.export_kd_teacher_load = "/no/such/folder"; }),
               ErrorKind::kCheckpoint),
       {"--export-kd-teacher-load /no/such/folder", "no checkpoint there"});
  said(refusal(student({}, form, [](auto& c) { c.checkpoint.export_kd_cfg = "/no/such/file"; }),
               ErrorKind::kIo),
       {"/no/such/file"});
  const FormFile pairs(kFinalNorms);
  said(refusal(student(
           {}, pairs,
           [](auto& c) { c.checkpoint.export_kd_teacher_load = teachers().folder("wide"); })),
       {"--export-kd-cfg", "32 channels", "48"});
  const FormFile layers("intermediate_layer_pairs: [[decoder.layers.2, decoder.layers.2]]");
  said(refusal(student({}, layers)), {"decoder.layers.2", "student has 2 layers"});
  const FormFile many(kManyLayers);
  said(refusal(student({}, many,
                       [](auto& c) {
                         c.model.recompute_granularity = "full";
                         c.model.recompute_method = "uniform";
                         c.model.recompute_num_layers = 1;
                       })),
       {"--recompute-granularity full", "decoder.final_layernorm"});
  // No tensor-parallel size that the teacher's heads do not divide by.
  said(refusal(student({.tp = 8}, form, [](auto& c) { c.model.num_attention_heads = 8; })),
       {"--export-kd-teacher-load", "--num-attention-heads"});
}

}  // namespace
}  // namespace pentatron::training

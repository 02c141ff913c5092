// SPDX-License-Identifier: Apache-2.0
// One loss: every layout equals one process in fp64. parity_test takes the layouts of the proof,
// parity_sweep all that the axes give.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/comm/backend.h"
#include "tests/parallel/parity_cases.h"

namespace pentatron::parity {
namespace {

// Loss, norm, gradients and the weights after the first step.
constexpr double kTolerance = 1e-12;
// After several steps rounding differences have gone through Adam's quotient (eps 1e-3).
constexpr double kTrainedTolerance = 1e-11;
// SOAP's basis beside a null space: soap_first_basis() tells neighbours apart by so much that
// rounding of 1e-16 turns them by less than this.
constexpr double kBasisTolerance = 1e-7;

std::string key_of(const CaseOptions& options) {
  return options.optimizer + fmt::format(" {} ", options.adam_eps) +
         (options.model == ModelKind::kGpt2 ? "g" : "l") +
         std::to_string(options.num_query_groups) + (options.mixed_layers ? "m" : "") +
         options.attention + options.form + fmt::format("{}", options.freeze) +
         fmt::format(" lora {} {} {} {}", options.lora_rank, options.lora_dropout,
                     options.lora_dora, options.lora_modules);
}

const Outcome& reference_of(const CaseOptions& options) {
  static std::map<std::string, Outcome> cache;
  const std::string key = key_of(options);
  auto found = cache.find(key);
  if (found == cache.end())
    found = cache.emplace(key, run_case(options, Layout{.micro_batch_size = 8})).first;
  return found->second;
}

// Of a layout whose bits others are compared with.
const Outcome& kept_of(const ParityCase& c) {
  static std::string key;
  static Outcome kept;
  const std::string own = key_of(c.options) + c.options.precision + c.kept.name();
  if (own != key) {
    kept = run_case(c.options, c.kept);
    key = own;
  }
  return kept;
}

// Other tensors, or other values.
bool differ(const Outcome& a, const Outcome& b) {
  for (const auto& [name, values] : a.first_gradients) {
    const auto found = b.first_gradients.find(name);
    if (found == b.first_gradients.end() || found->second.sizes() != values.sizes()) {
      return a.losses != b.losses;
    }
  }
  return !difference(a, b, kTolerance).empty();
}

void PrintTo(const ParityCase& c, std::ostream* out) { *out << c.name; }

class Parity : public ::testing::TestWithParam<ParityCase> {};

TEST_P(Parity, Holds) {
  const ParityCase& c = GetParam();
  const bool basis = c.options.optimizer == "soap";
  switch (c.claim) {
    case ParityCase::Claim::kEqual:
      EXPECT_EQ(difference(reference_of(c.options), run_case(c.options, c.layout),
                           basis ? kBasisTolerance : kTolerance,
                           basis ? kBasisTolerance : kTrainedTolerance),
                "")
          << c.layout.name();
      break;
    case ParityCase::Claim::kDiffers:
      EXPECT_TRUE(differ(reference_of(c.other), reference_of(c.options)));
      break;
    case ParityCase::Claim::kSameBits:
      EXPECT_EQ(difference(kept_of(c), run_case(c.options, c.layout), 0.0), "") << c.layout.name();
      break;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Parity, ::testing::ValuesIn(parity_cases()),
                         [](const auto& info) { return info.param.name; });

// Whole units, and a whole stage of two, without a trained weight; some weights of each layer; the
// tied embedding. Frozen weights keep every bit; the others' gradients are those of a model that
// trains everything, so the norm is theirs alone.
TEST(ParityOfOne, FrozenWeightsKeepEveryBit) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const std::vector<std::string>& freeze :
         {std::vector<std::string>{"embedding.*", "decoder.layers.0.*", "decoder.layers.1.*"},
          {"*.linear_fc1.*", "*.linear_qkv.*", "*.layers.3.*norm*"}}) {
      CaseOptions options{.model = model, .freeze = freeze};
      const Outcome& frozen = reference_of(options);
      const Outcome& whole = reference_of({.model = model});
      double squares = 0;
      int kept = 0;
      for (const auto& [name, gradient] : frozen.first_gradients) {
        if (gradient.abs().max().item<double>() == 0) {
          EXPECT_TRUE(frozen.weights.at(name).equal(frozen.first_weights.at(name))) << name;
          ++kept;
          continue;
        }
        EXPECT_TRUE(gradient.equal(whole.first_gradients.at(name))) << name;
        squares += gradient.square().sum().item<double>();
      }
      EXPECT_GT(kept, 4);
      EXPECT_NEAR(frozen.first_norm, std::sqrt(squares), 1e-12 * frozen.first_norm);
      EXPECT_LT(frozen.first_norm, whole.first_norm);
    }
  }
}

// Frozen weights with adapters on the parts of every linear layer, or of some; whole stages of
// which only those are trained.
TEST(ParityOfOne, AdaptersAloneAreTrained) {
  for (const bool dora : {false, true}) {
    for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
      CaseOptions options{.model = model, .lora_rank = 3, .lora_dropout = 0.2, .lora_dora = dora};
      const Outcome& tuned = reference_of(options);
      int kept = 0, trained = 0;
      for (const auto& [name, gradient] : tuned.first_gradients) {
        const bool adapter = name.find(".lora_") != std::string::npos;
        (adapter ? trained : kept) += 1;
        EXPECT_EQ(gradient.abs().max().item<double>() > 0, adapter) << name;
        EXPECT_EQ(tuned.weights.at(name).equal(tuned.first_weights.at(name)), !adapter) << name;
      }
      EXPECT_GT(kept, 10);
      EXPECT_EQ(trained, 4 * (model == ModelKind::kLlama ? 7 : 6) * (dora ? 3 : 2));
      CaseOptions other = options;
      other.lora_dropout = 0;
      EXPECT_NE(difference(reference_of(other), tuned, kTolerance), "");
    }
  }
}

// Promise: no globals. Two models on different grids of one world take turns in every rank's
// thread.
TEST(ParityOfOne, TwoGridsInOneProcess) {
  const CaseOptions gpt2{.model = ModelKind::kGpt2};
  const CaseOptions llama{.model = ModelKind::kLlama};
  const Layout sharded{.tp = 2, .dp = 2, .sharded_optimizer = true};
  const Layout staged{.tp = 2, .sequence_parallel = true, .pp = 2};
  std::vector<std::string> differences(4);
  const Outcome& gpt2_alone = reference_of(gpt2);
  const Outcome& llama_alone = reference_of(llama);
  comm::run_threads({.world_size = 4, .threads_per_rank = 1}, [&](comm::Backend& backend) {
    RankRun first(gpt2, sharded, backend, "first");
    RankRun second(llama, staged, backend, "second");
    for (int step = 0; step < gpt2.steps; ++step) {
      first.train_step();
      second.train_step();
    }
    const Outcome of_second = second.finish();
    differences[static_cast<std::size_t>(backend.rank())] =
        difference(gpt2_alone, first.finish(), kTolerance, kTrainedTolerance) +
        difference(llama_alone, of_second, kTolerance, kTrainedTolerance);
  });
  for (const std::string& text : differences) EXPECT_EQ(text, "");
}

TEST(ParityOfOne, SameRunTwiceIsEqualToTheBit) {
  const Layout layout{.tp = 2, .pp = 2, .dp = 2, .sharded_optimizer = true};
  const Outcome a = run_case({}, layout);
  const Outcome b = run_case({}, layout);
  EXPECT_EQ(difference(a, b, 0.0), "");
}

}  // namespace
}  // namespace pentatron::parity

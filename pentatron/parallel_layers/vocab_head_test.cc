// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/vocab_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/test_support.h"
#include "pentatron/tensor/memory.h"

namespace pentatron::parallel_layers {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

constexpr std::int64_t kVocab = 13;
constexpr std::int64_t kHidden = 6;

nn::ParameterPlan plan_for(const LeafContext& context, std::int64_t vocab, std::int64_t padded,
                           std::int64_t hidden) {
  nn::ParameterPlan plan;
  plan.add({"w.weight",
            lay_out({{.name = "w.weight",
                      .rows = vocab,
                      .columns = hidden,
                      .cut = over_tp(padded),
                      .init = {nn::InitKind::kNormal, 0.7},
                      .padded_rows = padded}},
                    context.layout()),
            3});
  return plan;
}

// Of kVocab words in `padded` rows, with values and room for gradients.
std::unique_ptr<VocabHead> filled_head(const LeafContext& context, const PrecisionPolicy& policy,
                                       std::int64_t padded, double softcap = 0.0) {
  auto head = std::make_unique<VocabHead>(context, plan_for(context, kVocab, padded, kHidden), "w",
                                          softcap);
  initialise(*head, 4);
  bind_gradients(*head, policy);
  return head;
}

// Loss, logits, input and weight gradient; with `postpone` the weight gradient waits in a queue,
// with `pieces` the loss never sees more than a few rows of logits.
void run_head(const LeafContext& context, const PrecisionPolicy& policy, bool postpone,
              Gathered& out, double softcap = 0.0, double smoothing = 0.0, bool pieces = false) {
  const auto made = filled_head(context, policy, 32, softcap);
  VocabHead& head = *made;
  head.set_label_smoothing(smoothing);
  // Of the 16 rows of 32 fp64 logits three on one rank: the last piece is a smaller one.
  if (pieces) head.set_logit_memory({.most = 1, .piece = 3 * 32 * 8});
  const Batch meta = make_batch({{5, 3}, {8}}, kVocab);
  WeightGradQueue queue;
  queue.set_postpone(postpone);
  nn::StepContext step{.batch = meta, .policy = policy, .scope = {.queue = &queue}};
  const LeafContext::Rows rows = context.local_rows(16);
  const nn::Box box{{rows.begin, 0}, {rows.size, kHidden}};
  const Tensor x = slice(random_tensor({16, kHidden}, "x"), box)
                       .to(policy.compute)
                       .clone()
                       .set_requires_grad(true);
  nn::Parameter& weight = *head.parameters()[0];
  const nn::ShardPart& part = weight.spec().parts[0];
  const Tensor logits = head.logits(x, step);
  EXPECT_FALSE(logits.requires_grad());
  out.put("logits", {16, kVocab}, {{0, part.box.offset[0]}, {16, part.box.size[0]}}, logits);
  const Tensor loss = head.loss(x, step);
  EXPECT_EQ(loss.dim(), 0);
  out.put("loss", {1}, {{0}, {1}}, loss.reshape({1}));
  ops::run_backward(loss, tensor::scalar(0.25, policy.loss));
  if (!pieces) {
    EXPECT_EQ(queue.pending(), postpone ? 1U : 0U);
  }
  EXPECT_EQ(weight.grad_written(), !postpone);
  queue.drain();
  out.put("dx", {16, kHidden}, box, x.grad());
  out.gradients(head);
}

void expect_equal_on_all_layouts(double softcap, double smoothing = 0.0) {
  const PrecisionPolicy policy = precision_policy("fp64");
  Gathered one;
  run_layout({1, false}, policy,
             [&](const LeafContext& c) { run_head(c, policy, false, one, softcap, smoothing); });
  for (const std::int64_t size : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      Gathered many;
      run_layout({size, sequence_parallel}, policy, [&](const LeafContext& c) {
        run_head(c, policy, size != 2, many, softcap, smoothing);
      });
      EXPECT_TRUE(many.complete());
      const auto [off, name] = worst_difference(many.tensors(), one.tensors());
      EXPECT_LE(off, 1e-12) << name << " on " << size << " ranks, softcap " << softcap;
    }
  }
}

// Postponed weight gradients and frozen inputs too.
TEST(VocabHead, InPiecesEqualsAllAtOnce) {
  const PrecisionPolicy policy = precision_policy("fp64");
  for (const auto& [softcap, smoothing] : {std::pair{0.0, 0.0}, {0.8, 0.0}, {0.0, 0.2}}) {
    Gathered whole;
    run_layout({1, false}, policy, [&, cap = softcap, smooth = smoothing](const LeafContext& c) {
      run_head(c, policy, false, whole, cap, smooth);
    });
    for (const std::int64_t size : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        Gathered pieces;
        run_layout({size, sequence_parallel}, policy,
                   [&, cap = softcap, smooth = smoothing](const LeafContext& c) {
                     run_head(c, policy, size != 2, pieces, cap, smooth, /*pieces=*/true);
                   });
        EXPECT_TRUE(pieces.complete());
        const auto [off, name] = worst_difference(pieces.tensors(), whole.tensors());
        EXPECT_LE(off, 1e-12) << name << " on " << size << " ranks, softcap " << softcap
                              << ", smoothing " << smoothing;
      }
    }
  }
}

// Loss and gradients of a head whose loss knows the gradient that will come, or does not.
std::vector<Tensor> results_of_loss(const PrecisionPolicy& policy, bool known) {
  std::vector<Tensor> results;
  run_layout({1, false}, policy, [&](const LeafContext& c) {
    const auto made = filled_head(c, policy, 32);
    VocabHead& head = *made;
    Batch meta = make_batch({{6}}, kVocab);
    meta.fields["loss_mask"] = tensor::from_vector(std::vector<float>{0, 1, 0, 0.5, 1, 1});
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x =
        random_tensor({6, kHidden}, "x").to(policy.compute).clone().set_requires_grad(true);
    const Tensor seed = tensor::scalar(0.25, policy.loss);
    const Tensor loss = head.loss(x, step, known ? seed : Tensor());
    ops::run_backward(loss, seed);
    results = {loss.detach(), x.grad(), head.parameters()[0]->main_grad().clone()};
  });
  return results;
}

TEST(VocabHead, KnownGradientGivesTheSameBits) {
  for (const char* precision : {"fp64", "fp32", "bf16"}) {
    const PrecisionPolicy policy = precision_policy(precision);
    const std::vector<Tensor> known = results_of_loss(policy, true);
    const std::vector<Tensor> plain = results_of_loss(policy, false);
    ASSERT_EQ(known.size(), 3);
    for (std::size_t i = 0; i < known.size(); ++i) {
      EXPECT_TRUE(known[i].equal(plain[i])) << precision << " " << i;
    }
    EXPECT_GT(known[1].abs().max().item<double>(), 0.0);
  }
}

TEST(VocabHead, AnotherGradientThanTheKnownOneIsRefused) {
  const PrecisionPolicy policy = precision_policy("fp64");
  run_layout({1, false}, policy, [&](const LeafContext& c) {
    const auto made = filled_head(c, policy, 32);
    VocabHead& head = *made;
    const Batch meta = make_batch({{6}}, kVocab);
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x = random_tensor({6, kHidden}, "x").set_requires_grad(true);
    const Tensor loss = head.loss(x, step, tensor::scalar(0.25, policy.loss));
    EXPECT_THROW(ops::run_backward(loss, tensor::scalar(0.25, policy.loss)), std::exception);
  });
}

TEST(VocabHead, RowsAtOnce) {
  const LogitMemory memory{.most = 1000, .piece = 256};
  EXPECT_EQ(memory.rows_at_once(8, 16, 15, DType::Float), 8);  // 960 bytes
  EXPECT_EQ(memory.rows_at_once(8, 16, 16, DType::Float), 2);  // 1024: four pieces
  EXPECT_EQ(memory.rows_at_once(8, 16, 1600, DType::Float), 1);
  EXPECT_EQ(LogitMemory{}.rows_at_once(8192, 8192, 128256, DType::BFloat16), 8192);
  EXPECT_EQ(LogitMemory{}.rows_at_once(131072, 131072, 128256, DType::BFloat16), 131072 / 32);
}

TEST(VocabHead, EqualsOneProcessAlsoWithRanksOfPaddingOnly) {
  expect_equal_on_all_layouts(0.0);
  expect_equal_on_all_layouts(0.8);
}

// Under tensor parallelism the mean goes over all ranks' columns, padding left out.
TEST(VocabHead, SmoothedLabelsEqualOneProcess) {
  expect_equal_on_all_layouts(0.0, 0.1);
  expect_equal_on_all_layouts(0.8, 0.3);
}

// A head in one process against the formula, differentiated by the library: Megatron-LM's smoothed
// labels, capped logits, also more rows than are worked on at once.
void expect_plain_formula(std::int64_t tokens, double cap, double smoothing) {
  const double share = smoothing * kVocab / (kVocab - 1.0);
  const PrecisionPolicy policy = precision_policy("fp64");
  run_layout({1, false}, policy, [&](const LeafContext& context) {
    const auto made = filled_head(context, policy, 16, cap);
    VocabHead& head = *made;
    head.set_label_smoothing(smoothing);
    const Batch meta = make_batch({{tokens}}, kVocab);
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x = random_tensor({tokens, kHidden}, "x").set_requires_grad(true);
    const Tensor plain_x = x.detach().clone().set_requires_grad(true);
    const Tensor w =
        head.parameters()[0]->data().narrow(0, 0, kVocab).clone().set_requires_grad(true);
    Tensor logits = plain_x.mm(w.t());
    if (cap > 0) logits = logits.div(cap).tanh().mul(cap);
    const Tensor log_p = logits.log_softmax(1);
    const Tensor nll_t = log_p.gather(1, meta.labels().unsqueeze(1)).squeeze(1).neg();
    const Tensor plain = nll_t.mul(1 - share)
                             .sub(log_p.mean(1).mul(share))
                             .mul(meta.loss_mask().to(DType::Double))
                             .sum();
    plain.backward();
    const Tensor loss = head.loss(x, step);
    ops::run_backward(loss, tensor::scalar(1.0, policy.loss));
    EXPECT_LE(difference(head.logits(x, step), logits.detach()), 1e-13);
    EXPECT_LE(difference(loss.detach(), plain.detach()), 1e-13);
    EXPECT_LE(difference(x.grad(), plain_x.grad()), 1e-12);
    EXPECT_LE(difference(head.parameters()[0]->main_grad().narrow(0, 0, kVocab), w.grad()), 1e-12);
  });
}

TEST(VocabHead, SmoothedLabelsEqualThePlainFormula) {
  expect_plain_formula(24, 0.0, 0.2);
  expect_plain_formula(24, 0.7, 0.2);
}

// Evaluations tell the plain loss, whatever training smooths.
TEST(VocabHead, EvaluationsAreNotSmoothed) {
  const PrecisionPolicy policy = precision_policy("fp64");
  run_layout({1, false}, policy, [&](const LeafContext& context) {
    const auto made = filled_head(context, policy, 16);
    VocabHead& head = *made;
    const Batch meta = make_batch({{12}}, kVocab);
    const Tensor x = random_tensor({12, kHidden}, "x");
    const auto loss_in = [&](nn::Phase phase) {
      nn::StepContext step{.batch = meta, .policy = policy, .phase = phase};
      return head.loss(x, step).item<double>();
    };
    const double plain = loss_in(nn::Phase::kTrain);
    head.set_label_smoothing(0.2);
    EXPECT_EQ(loss_in(nn::Phase::kEvaluate), plain);
    EXPECT_GT(std::abs(loss_in(nn::Phase::kTrain) - plain), 1e-3);
  });
}

TEST(VocabHead, CappedLogitsEqualThePlainFormula) { expect_plain_formula(70, 0.7, 0.0); }

TEST(VocabHead, EqualsThePlainFormula) {
  const PrecisionPolicy policy = precision_policy("fp64");
  Gathered one;
  run_layout({1, false}, policy, [&](const LeafContext& c) {
    run_head(c, policy, false, one);
    VocabHead head(c, plan_for(c, kVocab, 32, kHidden), "w");
    initialise(head, 4);
    const Batch meta = make_batch({{5, 3}, {8}}, kVocab);
    const Tensor x = random_tensor({16, kHidden}, "x").set_requires_grad(true);
    const Tensor w =
        head.parameters()[0]->data().narrow(0, 0, kVocab).clone().set_requires_grad(true);
    const Tensor log_p = x.mm(w.t()).log_softmax(1);
    const Tensor loss = log_p.gather(1, meta.labels().view({16, 1}))
                            .view({16})
                            .mul(meta.loss_mask().to(DType::Double))
                            .sum()
                            .neg();
    loss.mul(0.25).backward();
    EXPECT_LE(difference(one.at("loss"), loss.detach().reshape({1})), 1e-12);
    EXPECT_LE(difference(one.at("dx"), x.grad()), 1e-12);
    EXPECT_LE(difference(one.at("w.weight"), w.grad()), 1e-12);
  });
}

// The loss over slices of the vocabulary is the cross entropy of the gathered logits, not larger by
// the logarithm of the ranks (a fault reported of another trainer; docs/public_faults.md).
TEST(Cases, MegatronLM_7452_GatheredLogits) {
  const PrecisionPolicy policy = precision_policy("fp64");
  Tensor of_one, logits_of_one;
  for (const std::int64_t size : {1, 2, 4}) {
    Gathered out;
    run_layout({size, false}, policy,
               [&](const LeafContext& c) { run_head(c, policy, false, out); });
    if (size == 1) {
      of_one = out.at("loss");
      logits_of_one = out.at("logits");
    }
    EXPECT_LE(difference(out.at("loss"), of_one), 1e-13) << size;
    EXPECT_LE(difference(out.at("logits"), logits_of_one), 1e-13) << size;
    const Batch meta = make_batch({{5, 3}, {8}}, kVocab);
    const Tensor picked_t =
        out.at("logits").log_softmax(1).gather(1, meta.labels().unsqueeze(1)).squeeze(1);
    const Tensor loss = picked_t.mul(meta.loss_mask().to(DType::Double)).sum().neg();
    EXPECT_LE(difference(out.at("loss"), loss.reshape({1})), 1e-13) << size;
  }
}

TEST(VocabHead, MaskedTokensGiveNoGradient) {
  const PrecisionPolicy policy = precision_policy("fp64");
  run_layout({1, false}, policy, [&](const LeafContext& c) {
    const auto made = filled_head(c, policy, 16);
    VocabHead& head = *made;
    Batch meta = make_batch({{6}}, kVocab);
    meta.fields["loss_mask"] = tensor::from_vector(std::vector<float>{0, 1, 0, 0, 1, 0});
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x = random_tensor({6, kHidden}, "x").set_requires_grad(true);
    ops::run_backward(head.loss(x, step), tensor::scalar(1.0, DType::Double));
    for (const std::int64_t row : {0, 2, 3, 5}) {
      EXPECT_EQ(x.grad().select(0, row).abs().max().item<double>(), 0.0);
    }
    EXPECT_GT(x.grad().select(0, 1).abs().max().item<double>(), 0.0);
  });
}

// Peak of the loss's forward and backward over the logits' bytes; `pieces`: their number, about.
double peak_share(const PrecisionPolicy& policy, double softcap = 0.0, std::int64_t pieces = 1,
                  double smoothing = 0.0) {
  double share = 0.0;
  run_layout({1, false}, policy, [&](const LeafContext& c) {
    const std::int64_t tokens = 1024;
    const std::int64_t vocab = 2048;
    VocabHead head(c, plan_for(c, vocab, vocab, 16), "w", softcap);
    head.set_label_smoothing(smoothing);
    if (pieces > 1) {
      head.set_logit_memory(
          {.most = 1, .piece = tokens * vocab * tensor::item_bytes(policy.logits) / pieces});
    }
    bind_gradients(head, policy);
    const Batch meta = make_batch({{tokens}}, vocab);
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x =
        random_tensor({tokens, 16}, "x").to(policy.compute).clone().set_requires_grad(true);
    tensor::MemoryMeter meter;
    ops::run_backward(head.loss(x, step), tensor::scalar(1.0, policy.loss));
    const double logits_bytes =
        static_cast<double>(tokens * vocab * tensor::item_bytes(policy.logits));
    share = static_cast<double>(meter.peak_bytes()) / logits_bytes;
  });
  return share;
}

TEST(VocabHead, PeakMemoryStaysUnderOneAndAFifthOfTheLogits) {
  EXPECT_GT(peak_share(precision_policy("fp32")), 0.99);  // the meter sees the logits
  EXPECT_LT(peak_share(precision_policy("fp32")), 1.2);
  EXPECT_LT(peak_share(precision_policy("bf16")), 1.2);
  EXPECT_LT(peak_share(precision_policy("fp32"), 5.0), 1.2);
  EXPECT_LT(peak_share(precision_policy("fp32"), 0.0, 16), 0.2);
  EXPECT_LT(peak_share(precision_policy("bf16"), 0.0, 1, /*smoothing=*/0.1), 1.2);
  EXPECT_LT(peak_share(precision_policy("fp32"), 5.0, 16), 0.2);
}

TEST(VocabHead, Bf16IsCloseToFp64) {
  Gathered exact;
  Gathered rounded;
  const PrecisionPolicy fp64 = precision_policy("fp64");
  const PrecisionPolicy bf16 = precision_policy("bf16");
  run_layout({1, false}, fp64, [&](const LeafContext& c) { run_head(c, fp64, false, exact); });
  run_layout({1, false}, bf16, [&](const LeafContext& c) { run_head(c, bf16, false, rounded); });
  EXPECT_LE(worst_difference(rounded.tensors(), exact.tensors()).first, 4e-2);
}

}  // namespace
}  // namespace pentatron::parallel_layers

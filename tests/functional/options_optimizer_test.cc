// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after. Learning rates are
// compared with the published formulas (r: share of the decay that is done).
namespace pentatron::functional {
namespace {

using Numbers = std::vector<double>;

Options decaying(const std::string& style) {
  return base().with("--lr-decay-style", style).with("--train-iters", 4);
}

// The length of the run in samples: 4 steps of 4.
Options in_samples(const Options& options) {
  return options.without("--train-iters").with("--train-samples", 16);
}

std::size_t tensors_of_kind(const Options& options, const std::string& kind) {
  const std::filesystem::path folder = new_folder();
  const TinyRun run = train(saving(options.with("--train-iters", 1), folder));
  std::size_t found = 0;
  for (const auto& [name, shape] : saved_shapes(folder, 1)) {
    if (name.starts_with(kind + "/")) ++found;
  }
  return found;
}

}  // namespace

TEST(Options, Optimizer) {
  const Options sgd = base().with("--optimizer", "sgd");
  EXPECT_GT(tensors_of_kind(base(), "exp_avg_sq"), 0U);
  EXPECT_EQ(tensors_of_kind(base(), "momentum"), 0U);
  EXPECT_EQ(tensors_of_kind(sgd, "exp_avg_sq"), 0U);
  EXPECT_GT(tensors_of_kind(sgd, "momentum"), 0U);
  EXPECT_EQ(train(sgd).first_loss(), train(base()).first_loss());
  EXPECT_NE(train(sgd).last_loss(), train(base()).last_loss());
}

TEST(Options, ApplyWdToQkLayernorm) {
  const Options plain = base().with("--qk-layernorm").with("--weight-decay", "0.5");
  const Options decayed = plain.with("--apply-wd-to-qk-layernorm");
  const TinyRun run = train(decayed);
  EXPECT_EQ(run.first_loss(), train(plain).first_loss());
  EXPECT_NE(run.last_loss(), train(plain).last_loss());
  EXPECT_NE(run.program.out.find(" matrices and 8 vectors of query and key norms; none on "),
            std::string::npos);
  // Without such norms it has no effect, which is said.
  const TinyRun without = train(base().with("--apply-wd-to-qk-layernorm"));
  expect_same_losses(without, train(base()), 0);
  EXPECT_NE(without.program.out.find("--apply-wd-to-qk-layernorm"), std::string::npos);
}

TEST(Options, FreezeParameters) {
  const Options frozen =
      base().with("--freeze-parameters", std::vector<std::string>{"*.mlp.*", "embedding.*"});
  EXPECT_EQ(train(frozen).first_loss(), train(base()).first_loss());
  EXPECT_NE(train(frozen).last_loss(), train(base()).last_loss());
  EXPECT_NE(train(frozen).program.out.find("; 10 parts are frozen"), std::string::npos);
  // Saved, without a state.
  EXPECT_EQ(tensors_of_kind(frozen, "param"), tensors_of_kind(base(), "param"));
  const std::size_t states = tensors_of_kind(frozen, "exp_avg");
  EXPECT_GT(states, 0U);
  EXPECT_EQ(tensors_of_kind(base(), "exp_avg") - states, 2U * 4 + 2);
  // A resumed run freezes the same.
  const std::filesystem::path folder = new_folder();
  (void)train(saving(frozen.with("--exit-interval", 2), folder));
  const TinyRun resumed = train(resuming(frozen, folder));
  EXPECT_EQ(resumed.last_loss(), train(frozen).last_loss());
  expect_refusal(try_train(resuming(base(), folder)).program, 7, {"freeze_parameters"});
  expect_refusal(try_train(base().with("--freeze-parameters", "decoder.layer.*")).program, 2,
                 {"--freeze-parameters", "decoder.layer.*", "describes no parameter"});
}

// Muon's momentum for matrices, Adam's moments for the rest; each of its options changes the
// losses.
TEST(Options, Muon) {
  const Options muon = base().with("--optimizer", "muon");
  EXPECT_GT(tensors_of_kind(muon, "momentum"), 0U);
  EXPECT_GT(tensors_of_kind(muon, "exp_avg"), 0U);
  EXPECT_EQ(train(muon).first_loss(), train(base()).first_loss());
  const double usual = train(muon).last_loss();
  EXPECT_NE(usual, train(base()).last_loss());
  for (const Options& changed :
       {muon.with("--muon-momentum", "0.5"), muon.with("--muon-num-ns-steps", 2),
        muon.with("--muon-coefficient-type", "simple"),
        muon.with("--muon-scale-mode", "unit_rms_norm"),
        muon.with("--muon-extra-scale-factor", "0.2"), muon.with("--muon-nesterov"),
        muon.with("--muon-no-split-qkv")}) {
    EXPECT_NE(train(changed).last_loss(), usual);
  }
}

// The host updates what it holds with the same arithmetic.
TEST(Options, OptimizerCpuOffload) {
  const Options offloaded = base().with("--optimizer-cpu-offload");
  EXPECT_EQ(train(offloaded).losses(), train(base()).losses());
}

TEST(Options, OptimizerOffload) {
  const Options half =
      base().with("--optimizer-cpu-offload").with("--optimizer-offload-fraction", "0.5");
  EXPECT_EQ(train(half).losses(), train(base()).losses());
  EXPECT_EQ(train(half.with("--overlap-cpu-optimizer-d2h-h2d")).losses(), train(base()).losses());
  expect_refusal(try_train(half.with("--optimizer-offload-fraction", "1.5")).program, 2,
                 {"--optimizer-offload-fraction", "1.5", "from 0 to 1"});
  // Without the offload it says nothing, and the run says so.
  const TinyRun idle = train(base().with("--optimizer-offload-fraction", "0.5"));
  EXPECT_NE(idle.program.out.find("there is no --optimizer-cpu-offload"), std::string::npos);
}

// Lion keeps one moment; its losses are its own.
TEST(Options, Lion) {
  const Options lion = base().with("--optimizer", "lion");
  EXPECT_GT(tensors_of_kind(lion, "exp_avg"), 0U);
  EXPECT_EQ(tensors_of_kind(lion, "exp_avg_sq"), 0U);
  EXPECT_EQ(train(lion).first_loss(), train(base()).first_loss());
  EXPECT_NE(train(lion).last_loss(), train(base()).last_loss());
  expect_refusal(try_train(lion.with("--lion-beta1", "0.9")).program, 2, {"--lion-beta1", "0.95"});
}

// A basis that is renewed in step 2 is used in step 3, whose weights the fourth loss sees.
TEST(Options, Soap) {
  const Options soap = base().with("--optimizer", "soap").with("--train-iters", 4);
  for (const char* kind : {"soap_left", "soap_right_basis"}) {
    EXPECT_GT(tensors_of_kind(soap, kind), 0U) << kind;
  }
  const TinyRun usual = train(soap);
  EXPECT_EQ(usual.first_loss(), train(base()).first_loss());
  EXPECT_NE(usual.losses()[2], train(base()).last_loss());
  const Options often = soap.with("--soap-precondition-frequency", 1);
  const double renewed = train(often).last_loss();
  EXPECT_NE(renewed, usual.last_loss());
  EXPECT_NE(train(often.with("--soap-shampoo-beta", "0.5")).last_loss(), renewed);
}

// Half the bytes of what each option names, other losses, and bits that a resumed run gives again.
TEST(Options, PrecisionAwareOptimizer) {
  const Options bf16 = base().with("--bf16");
  const Options aware = bf16.with("--use-precision-aware-optimizer");
  EXPECT_EQ(train(aware).losses(), train(bf16).losses()) << "fp32 is the default of each";
  const double usual = train(bf16).last_loss();
  const Options moments = aware.with("--exp-avg-dtype", "bf16").with("--exp-avg-sq-dtype", "bf16");
  const Options all =
      moments.with("--main-params-dtype", "bf16").with("--main-grads-dtype", "bf16");
  for (const Options& one :
       {aware.with("--exp-avg-dtype", "bf16"), aware.with("--exp-avg-sq-dtype", "bf16"),
        aware.with("--main-params-dtype", "bf16"), aware.with("--main-grads-dtype", "bf16"), all}) {
    EXPECT_NE(train(one).last_loss(), usual);
    EXPECT_NEAR(train(one).last_loss(), usual, 0.05 * usual);
  }
  const std::filesystem::path folder = new_folder();
  (void)train(saving(all.with("--exit-interval", 2), folder));
  EXPECT_EQ(train(resuming(all, folder)).last_loss(), train(all).last_loss());
  expect_refusal(try_train(resuming(moments, folder)).program, 7, {"main_params_dtype"});
  expect_refusal(try_train(all.without("--bf16")).program, 2,
                 {"--main-params-dtype bf16 needs --bf16, not fp32"});
  expect_refusal(try_train(moments.with("--optimizer", "sgd")).program, 2,
                 {"--use-precision-aware-optimizer", "sgd"});
  expect_refusal(try_train(aware.with("--exp-avg-sq-dtype", "fp8")).program, 2,
                 {"--exp-avg-sq-dtype", "fp8"});
}

TEST(Options, GradReduceInBf16) {
  const Options bf16 = base().with("--bf16");
  const Options reduced = bf16.with("--grad-reduce-in-bf16");
  EXPECT_EQ(train(reduced).first_loss(), train(bf16).first_loss());
  EXPECT_NE(train(reduced).last_loss(), train(bf16).last_loss());
  EXPECT_NEAR(train(reduced).last_loss(), train(bf16).last_loss(), 0.05 * train(bf16).last_loss());
  expect_refusal(try_train(reduced.with("--accumulate-allreduce-grads-in-fp32")).program, 2,
                 {"--accumulate-allreduce-grads-in-fp32", "--grad-reduce-in-bf16"});
}

TEST(Options, MegatronFsdpDtypes) {
  const Options bf16 = base()
                           .with("--bf16")
                           .with("--use-megatron-fsdp")
                           .with("--world-size", 2)
                           .with("--distributed-backend", "threads");
  const double usual = train(bf16).last_loss();
  const Options kept = bf16.with("--megatron-fsdp-main-grads-dtype", "bf16");
  for (const Options& narrow : {kept, bf16.with("--megatron-fsdp-grad-comm-dtype", "bf16"),
                                kept.with("--megatron-fsdp-grad-comm-dtype", "fp32")}) {
    EXPECT_EQ(train(narrow).first_loss(), train(bf16).first_loss());
    EXPECT_NE(train(narrow).last_loss(), usual);
    EXPECT_NEAR(train(narrow).last_loss(), usual, 0.05 * usual);
  }
  const Options wide = bf16.with("--megatron-fsdp-main-params-dtype", "fp32")
                           .with("--megatron-fsdp-main-grads-dtype", "fp32")
                           .with("--megatron-fsdp-grad-comm-dtype", "fp32");
  EXPECT_EQ(train(wide).losses(), train(bf16).losses());
  expect_refusal(try_train(wide.with("--grad-reduce-in-bf16")).program, 2,
                 {"--megatron-fsdp-main-grads-dtype fp32", "--grad-reduce-in-bf16"});
  for (const char* part : {"main-params", "main-grads", "grad-comm"}) {
    const std::string option = std::string("--megatron-fsdp-") + part + "-dtype";
    expect_refusal(try_train(bf16.with(option, "fp16")).program, 2, {option, "fp16"});
  }
  expect_no_effect(train(base().with("--megatron-fsdp-grad-comm-dtype", "bf16")).program,
                   "--megatron-fsdp-grad-comm-dtype");
}

TEST(Options, LearningRate) {
  expect_near(rates(base()), {kLr, kLr, kLr});
  expect_near(rates(base().with("--lr", "0.02")), {0.02, 0.02, 0.02});
  EXPECT_NE(train(base().with("--lr", "0.02")).last_loss(), train(base()).last_loss());
}

TEST(Options, MinLr) {
  const Options options = decaying("linear").with("--lr-decay-iters", 2);
  expect_near(rates(options), {kLr, kLr / 2, 0, 0});
  expect_near(rates(options.with("--min-lr", "0.002")), {kLr, 0.006, 0.002, 0.002});
}

TEST(Options, LrDecayStyle) {
  expect_near(rates(decaying("constant")), {kLr, kLr, kLr, kLr});
  expect_near(rates(decaying("linear")), {kLr, kLr * 0.75, kLr * 0.5, kLr * 0.25});
  Numbers cosine;
  for (int i = 0; i < 4; ++i) {
    cosine.push_back(kLr * 0.5 * (1 + std::cos(std::numbers::pi * i / 4)));
  }
  expect_near(rates(decaying("cosine")), cosine);
  const Numbers root = rates(decaying("inverse-square-root").with("--lr-warmup-iters", 1));
  // Four samples of warm-up; then lr sqrt(4 / n) at n = 4, 8, 12 samples.
  expect_near(root, {0, kLr, kLr * std::sqrt(4.0 / 8), kLr * std::sqrt(4.0 / 12)});
}

TEST(Options, LrDecayIters) {
  expect_near(rates(decaying("linear").with("--lr-decay-iters", 8)),
              {kLr, kLr * 0.875, kLr * 0.75, kLr * 0.625});
}

TEST(Options, LrDecaySamples) {
  expect_near(rates(in_samples(decaying("linear"))), {kLr, kLr * 0.75, kLr * 0.5, kLr * 0.25});
  expect_near(rates(in_samples(decaying("linear")).with("--lr-decay-samples", 32)),
              {kLr, kLr * 0.875, kLr * 0.75, kLr * 0.625});
}

TEST(Options, LrWarmup) {
  const Options options = decaying("constant");
  expect_near(rates(options.with("--lr-warmup-iters", 2)), {0, kLr / 2, kLr, kLr});
  expect_near(rates(options.with("--lr-warmup-fraction", "0.5")), {0, kLr / 2, kLr, kLr});
  expect_near(rates(options.with("--lr-warmup-iters", 2).with("--lr-warmup-init", "0.004")),
              {0.004, 0.007, kLr, kLr});
  expect_near(rates(in_samples(options).with("--lr-warmup-samples", 8)), {0, kLr / 2, kLr, kLr});
}

TEST(Options, WeightDecay) {
  const Options heavy = base().with("--weight-decay", "1.0");
  EXPECT_EQ(train(base()).series("train", "weight_decay"), (Numbers{0.01, 0.01, 0.01}));
  EXPECT_EQ(train(heavy).series("train", "weight_decay"), (Numbers{1, 1, 1}));
  EXPECT_EQ(train(heavy).first_loss(), train(base()).first_loss());
  EXPECT_NE(train(heavy).last_loss(), train(base()).last_loss());
}

TEST(Options, AdamConstants) {
  const double usual = train(base()).last_loss();
  EXPECT_NE(train(base().with("--adam-beta1", "0.5")).last_loss(), usual);
  EXPECT_NE(train(base().with("--adam-beta2", "0.5")).last_loss(), usual);
  EXPECT_NE(train(base().with("--adam-eps", "1e-2")).last_loss(), usual);
  EXPECT_EQ(train(base().with("--adam-beta1", "0.9")).last_loss(), usual);
}

TEST(Options, SgdMomentum) {
  const Options sgd = base().with("--optimizer", "sgd");
  EXPECT_NE(train(sgd.with("--sgd-momentum", "0.1")).last_loss(), train(sgd).last_loss());
  EXPECT_EQ(train(sgd.with("--sgd-momentum", "0.9")).last_loss(), train(sgd).last_loss());
}

TEST(Options, ClipGrad) {
  const Options sgd = base().with("--optimizer", "sgd").with("--lr", "1e-1");
  const TinyRun open = train(sgd.with("--clip-grad", "0"));
  const TinyRun clipped = train(sgd.with("--clip-grad", "0.1"));
  const TinyRun stopped = train(sgd.with("--clip-grad", "1e-9"));
  ASSERT_GT(open.series("train", "grad_norm").at(0), 0.5);
  EXPECT_EQ(clipped.first_loss(), open.first_loss());
  EXPECT_NE(clipped.last_loss(), open.last_loss());
  EXPECT_NE(clipped.last_loss(), stopped.last_loss());
  // The norm is that before clipping.
  EXPECT_EQ(clipped.series("train", "grad_norm").at(0), open.series("train", "grad_norm").at(0));
}

TEST(Options, SchedulerOnResume) {
  const std::filesystem::path folder = new_folder();
  const Options run = base().with("--train-iters", 4);
  const TinyRun first = train(saving(run.with("--exit-interval", 2), folder));
  const Options changed = run.with("--load", folder.string()).with("--lr", "0.005");
  expect_refusal(try_train(changed).program, 7, {"max_lr", "0.01", "0.005", "--override-opt"});
  expect_near(rates(changed.with("--override-opt_param-scheduler")), {0.005, 0.005});
  expect_near(rates(changed.with("--override-opt-param-scheduler")), {0.005, 0.005});
  expect_near(rates(changed.with("--use-checkpoint-opt_param-scheduler")), {kLr, kLr});
  expect_near(rates(changed.with("--use-checkpoint-opt-param-scheduler")), {kLr, kLr});
  // What that option does not cover is not answered with it.
  const TinyRun clip = try_train(run.with("--load", folder.string())
                                     .with("--clip-grad", "0.5")
                                     .with("--use-checkpoint-opt_param-scheduler"));
  expect_refusal(clip.program, 7, {"clip_grad", "--override-opt_param-scheduler"});
  EXPECT_EQ(count(clip.program.err, "or --use-checkpoint"), 0U) << clip.program.err;
  expect_refusal(try_train(run.with("--load", folder.string())
                               .with("--optimizer", "sgd")
                               .with("--override-opt_param-scheduler"))
                     .program,
                 7, {"holds no state of --optimizer sgd", "--no-load-optim"});
}

}  // namespace pentatron::functional

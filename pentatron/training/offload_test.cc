// SPDX-License-Identifier: Apache-2.0
// --fine-grained-activation-offloading: what stays, what goes, and that no bit changes.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/tensor/memory.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

const std::vector<std::string> kAll = {"attn_norm", "qkv_linear", "core_attn", "attn_proj",
                                       "mlp_norm"};

config::RunConfig config_of(const ChangeConfig& change) {
  return tiny_config({}, [&](config::RunConfig& c) {
    c.model.num_layers = 6;
    c.training.micro_batch_size = 8;
    c.model.min_offloaded_tensor_size = 256;
    change(c);
  });
}

ChangeConfig offload(const std::vector<std::string>& modules, double fraction = 1.0,
                     std::int64_t least = 256) {
  return [=](config::RunConfig& c) {
    c.model.fine_grained_activation_offloading = true;
    c.model.offload_modules = modules;
    c.model.activation_offload_fraction = fraction;
    c.model.min_offloaded_tensor_size = least;
  };
}

// What the device's memory would fall by: on a CPU the copies stand in the same memory, so what a
// first step has taken of it is left out. And the gradients.
std::pair<std::int64_t, std::map<std::string, Tensor>> step_of(const ChangeConfig& change) {
  std::pair<std::int64_t, std::map<std::string, Tensor>> result;
  with_engine(config_of(change), [&](Engine& engine) {
    const std::vector<Batch> batches = micro_batches(engine, 0);
    (void)engine.forward_backward(batches);
    const tensor::MemoryMeter meter;
    (void)engine.forward_backward(batches);
    result = {meter.peak_bytes(), engine.gather_gradients()};
  });
  return result;
}

TEST(Offload, KeepsLessAndChangesNoBit) {
  const auto [kept, gradients] = step_of([](config::RunConfig&) {});
  const auto peak_of = [&, &expected = gradients](const ChangeConfig& change) {
    const auto [peak, others] = step_of(change);
    for (const auto& [name, gradient] : expected) {
      EXPECT_TRUE(others.at(name).equal(gradient)) << name;
    }
    return peak;
  };
  const std::int64_t all = peak_of(offload(kAll));
  EXPECT_LT(all, kept * 4 / 5);
  for (const std::string& module : kAll) {
    const std::int64_t one = peak_of(offload({module}));
    EXPECT_LT(one, kept) << module;
    EXPECT_GT(one, all) << module;
  }
  const std::int64_t half = peak_of(offload(kAll, 0.5));
  EXPECT_LT(half, kept);
  EXPECT_GT(half, all);
  // 8 x 16 rows of 32 channels are 4,096 elements; nothing is larger but the packed product.
  EXPECT_EQ(peak_of(offload(kAll, 1.0, 4097)), kept);
}

TEST(Offload, StepsAfterTheFirstTakeNoMemory) {
  with_engine(config_of(offload(kAll)), [](Engine& engine) {
    (void)train_steps(engine, 0, 2);
    const tensor::MemoryMeter meter;
    (void)train_steps(engine, 2, 6);
    EXPECT_LT(meter.current_bytes(), 4096) << "bytes more after four steps";
  });
}

}  // namespace
}  // namespace pentatron::training

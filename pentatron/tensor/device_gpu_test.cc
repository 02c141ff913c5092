// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/device.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

TEST(CudaLibrary, NamesGpusAndVersions) {
  PENTATRON_NEEDS_GPUS(1);
  const auto found = gpus();
  ASSERT_EQ(static_cast<int>(found.size()), load_cuda_library().gpus);
  EXPECT_GE(found[0].major, 8);
  EXPECT_GT(found[0].memory_bytes, std::int64_t{1} << 33);
  const CudaVersions versions = cuda_versions();
  EXPECT_EQ(versions.runtime / 1000, 13);
  EXPECT_GE(versions.driver, versions.runtime / 1000 * 1000);
  EXPECT_EQ(nccl_version_text(versions.nccl), "2.28.9");
  EXPECT_GE(versions.cudnn, 91900);
}

TEST(CudaLibrary, ResolvesRanksToGpus) {
  PENTATRON_NEEDS_GPUS(1);
  const int count = load_cuda_library().gpus;
  for (int rank = 0; rank < count; ++rank) {
    EXPECT_EQ(resolve_device("auto", rank, count).index(), rank);
    EXPECT_EQ(resolve_device("cuda", rank, count).index(), rank);
  }
  EXPECT_TRUE(resolve_device("cpu", 0, count + 1).is_cpu());
  for (const char* asked : {"auto", "cuda"}) {
    try {
      static_cast<void>(resolve_device(asked, 0, count + 1));
      ADD_FAILURE() << asked << " gave a GPU to more ranks than there are GPUs";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find("--device cpu"), std::string::npos);
    }
  }
}

TEST(DeviceMemory, CountsAllocationsAndGivesThemBack) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = resolve_device("cuda", 0, 1);
  const DeviceMemory before = device_memory(gpu);
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  {
    const Tensor t = zeros({kBytes}, DType::Byte, gpu);
    const DeviceMemory with = device_memory(gpu);
    EXPECT_EQ(with.allocated - before.allocated, kBytes);
    EXPECT_EQ(with.allocations - before.allocations, 1);
    EXPECT_GE(with.reserved, with.allocated);
  }
  EXPECT_EQ(device_memory(gpu).allocated, before.allocated);
  EXPECT_GE(device_memory(gpu).peak_allocated, before.allocated + kBytes);
  synchronize(gpu);
  empty_device_cache();
  reset_peak_memory(gpu);
  const DeviceMemory after = device_memory(gpu);
  EXPECT_LT(after.reserved, before.reserved + kBytes);
  EXPECT_EQ(after.peak_allocated, after.allocated);
}

TEST(DeviceQueue, SideStreamSeesWhatItWaitsForAndTheOtherWay) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = resolve_device("cuda", 0, 1);
  SideStream side(gpu);
  constexpr std::int64_t kSize = std::int64_t{1} << 26;
  Tensor x = zeros({kSize}, DType::Float, gpu);
  for (int i = 0; i < 20; ++i) x.add_(1);
  side.wait_for_current();
  Tensor y;
  {
    const SideStream::Scope on(side);
    y = x.mul(2);
    for (int i = 0; i < 20; ++i) y.add_(1);
  }
  side.keep(x);
  side.current_waits();
  EXPECT_EQ(y.min().item<float>(), 60.0F);
  EXPECT_EQ(y.max().item<float>(), 60.0F);
}

TEST(DeviceQueue, EventsMeasureTheDevicesTime) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = resolve_device("cuda", 0, 1);
  Event start(gpu, true);
  Event end(gpu, true);
  Tensor x = zeros({std::int64_t{1} << 28}, DType::Float, gpu);
  synchronize(gpu);
  start.record();
  for (int i = 0; i < 10; ++i) x.add_(1);  // 2 GiB of traffic each: at least 0.2 ms on any GPU
  end.record();
  end.synchronize();
  EXPECT_TRUE(end.query());
  EXPECT_GT(end.milliseconds_since(start), 2.0);
}

TEST(StepGraph, ReplaysWithNewInputsInTheSameMemory) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = resolve_device("cuda", 0, 1);
  Tensor input = ones({1000}, DType::Float, gpu);
  Tensor rate = full({}, 0.5, DType::Float, gpu);
  Tensor state = zeros({1000}, DType::Float, gpu);
  const auto step = [&] { state.add_(input.mul(input).mul(rate)); };
  StepGraph graph(gpu);
  graph.warm_up(step);
  EXPECT_EQ(state.sum().item<float>(), 500.0F);
  graph.capture(step);
  EXPECT_TRUE(graph.captured());
  EXPECT_EQ(state.sum().item<float>(), 500.0F) << "recording must not run the step";
  input.fill_(2);
  graph.replay();
  EXPECT_EQ(state.sum().item<float>(), 500.0F + 2000.0F);
  rate.fill_(1);
  input.fill_(1);
  graph.replay();
  EXPECT_EQ(state.sum().item<float>(), 500.0F + 2000.0F + 1000.0F);
}

TEST(StepGraph, SaysWhenAStepWaitsForTheHostAndTheGpuStaysUsable) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = resolve_device("cuda", 0, 1);
  const Tensor x = ones({10}, DType::Float, gpu);
  StepGraph graph(gpu);
  try {
    graph.capture([&] { static_cast<void>(x.sum().item<float>()); });
    ADD_FAILURE() << "a host wait was recorded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCuda);
    EXPECT_NE(std::string(error.what()).find("recorded"), std::string::npos);
  }
  EXPECT_EQ(x.sum().item<float>(), 10.0F);
}

}  // namespace
}  // namespace pentatron::tensor

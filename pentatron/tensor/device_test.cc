// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/device_table.h"

namespace pentatron::tensor {
namespace {

// The default tests are shown no GPU (CUDA_VISIBLE_DEVICES), also on a machine that has some.
TEST(ResolveDevice, AutoIsTheCpuWhereNoGpuIs) {
  ASSERT_FALSE(load_cuda_library().available);
  EXPECT_EQ(load_cuda_library().gpus, 0);
  EXPECT_FALSE(load_cuda_library().reason.empty());
  EXPECT_TRUE(resolve_device("auto", 1, 2).is_cpu());
  EXPECT_TRUE(resolve_device("cpu", 0, 1).is_cpu());
  EXPECT_TRUE(gpus().empty());
  EXPECT_EQ(cuda_versions().runtime, 0);
}

std::string refusal(const char* asked, int local_rank, int local_ranks) {
  try {
    static_cast<void>(resolve_device(asked, local_rank, local_ranks));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "nothing was refused";
}

TEST(ResolveDevice, RefusesWhatCannotBeHadWithCountAndReason) {
  const std::string cuda = refusal("cuda", 0, 1);
  EXPECT_NE(cuda.find("0 GPUs"), std::string::npos) << cuda;
  EXPECT_NE(cuda.find(load_cuda_library().reason), std::string::npos) << cuda;
  EXPECT_NE(cuda.find("--device cpu"), std::string::npos) << cuda;
  EXPECT_NE(refusal("gpu", 0, 1).find("auto, cpu or cuda"), std::string::npos);
  EXPECT_NE(refusal("cpu", 2, 2).find("LOCAL_RANK"), std::string::npos);
}

TEST(DeviceTable, IsRefusedWithTheReason) {
  try {
    static_cast<void>(device_table());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(load_cuda_library().reason), std::string::npos);
  }
}

TEST(DeviceVersions, ReadAsPeopleWriteThem) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
}

TEST(DeviceQueue, OnTheCpuEventsAreTimesAndSideStreamsNothing) {
  const Device cpu("cpu");
  Event start(cpu, true);
  Event end(cpu, true);
  start.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record();
  EXPECT_TRUE(end.query());
  EXPECT_GE(end.milliseconds_since(start), 19.0);
  EXPECT_THROW(static_cast<void>(Event(cpu).milliseconds_since(start)), Error);
  SideStream side(cpu);
  side.wait_for_current();
  { const SideStream::Scope on(side); }
  side.current_waits();
  synchronize(cpu);
  EXPECT_EQ(device_memory(cpu).reserved, 0);
  EXPECT_THROW(StepGraph{cpu}, Error);
}

}  // namespace
}  // namespace pentatron::tensor

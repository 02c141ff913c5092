// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/gpu_energy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "pentatron/base/test_support.h"

namespace pentatron::training {
namespace {

// NVML as a GPU's driver would answer.
struct FakeNvml {
  static inline int users = 0;
  static inline int gpu = 0;  // the address of what stands for a handle
  static inline unsigned long long millijoules = 0;
  static inline int code = 0;  // of the counter
};
int init() {
  ++FakeNvml::users;
  return 0;
}
int shut_down() {
  --FakeNvml::users;
  return 0;
}
int find_gpu(const char* pci_bus_id, void** gpu) {
  *gpu = &FakeNvml::gpu;
  return std::string(pci_bus_id) == "0000:1A:00.0" ? 0 : 6;
}
int read_energy(void* gpu, unsigned long long* millijoules) {
  *millijoules = FakeNvml::millijoules;
  return gpu == &FakeNvml::gpu ? FakeNvml::code : 2;
}
struct Percents {
  unsigned int gpu = 0;
  unsigned int memory = 0;
};
int read_busy(void* gpu, Percents* percents) {
  *percents = {.gpu = 87, .memory = 12};
  return gpu == &FakeNvml::gpu ? FakeNvml::code : 2;
}
int read_clock(void* gpu, int kind, unsigned int* megahertz) {
  *megahertz = kind == 1 ? 1755 : 2619;  // multiprocessors, memory
  return gpu == &FakeNvml::gpu ? FakeNvml::code : 2;
}
int read_power(void* gpu, unsigned int* milliwatts) {
  *milliwatts = 695'500;
  return gpu == &FakeNvml::gpu ? FakeNvml::code : 2;
}
const char* words(int code) { return code == 6 ? "Not Found" : "Not Supported"; }

class Nvml : public testing::Test {
 protected:
  Nvml() {
    FakeNvml::users = 0;
    FakeNvml::code = 0;
    FakeNvml::millijoules = 5'000'000;
  }
  [[nodiscard]] NvmlFunctions functions() const {
    return [this](const char* name) {
      const auto found = known_.find(name);
      return found == known_.end() ? nullptr : found->second;
    };
  }

  std::map<std::string, void*> known_{
      {"nvmlInit_v2", reinterpret_cast<void*>(&init)},
      {"nvmlShutdown", reinterpret_cast<void*>(&shut_down)},
      {"nvmlDeviceGetHandleByPciBusId_v2", reinterpret_cast<void*>(&find_gpu)},
      {"nvmlDeviceGetTotalEnergyConsumption", reinterpret_cast<void*>(&read_energy)},
      {"nvmlErrorString", reinterpret_cast<void*>(&words)}};
};

TEST_F(Nvml, CountsJoulesOfTheGpuAtAnAddress) {
  {
    const EnergyCounter counter = nvml_energy_counter(functions(), "0000:1A:00.0");
    EXPECT_EQ(FakeNvml::users, 1);
    EXPECT_DOUBLE_EQ(counter(), 5000);
    FakeNvml::millijoules += 2'500;
    EXPECT_DOUBLE_EQ(counter(), 5002.5);
    FakeNvml::code = 15;
    EXPECT_TRUE(std::isnan(counter())) << "a GPU that is gone ends no run";
  }
  EXPECT_EQ(FakeNvml::users, 0);
}

TEST_F(Nvml, RefusesInItsWords) {
  expect_error(ErrorKind::kUnsupported, "does not know the GPU at 0000:00:00.0: Not Found",
               [&] { (void)nvml_energy_counter(functions(), "0000:00:00.0"); });
  FakeNvml::code = 3;
  expect_error(ErrorKind::kUnsupported, "counts no energy of the GPU at 0000:1A:00.0: Not Supp",
               [&] { (void)nvml_energy_counter(functions(), "0000:1A:00.0"); });
  EXPECT_EQ(FakeNvml::users, 0);
  known_.erase("nvmlDeviceGetTotalEnergyConsumption");
  expect_error(ErrorKind::kUnsupported, "has no nvmlDeviceGetTotalEnergyConsumption",
               [&] { (void)nvml_energy_counter(functions(), "0000:1A:00.0"); });
}

TEST_F(Nvml, TellsHowBusyTheGpuIs) {
  expect_error(ErrorKind::kUnsupported, "does not tell how busy",
               [&] { (void)nvml_busy_share(functions(), "0000:1A:00.0"); });
  known_["nvmlDeviceGetUtilizationRates"] = reinterpret_cast<void*>(&read_busy);
  {
    const auto share = nvml_busy_share(functions(), "0000:1A:00.0");
    EXPECT_DOUBLE_EQ(share(), 0.87);
    FakeNvml::code = 15;
    EXPECT_TRUE(std::isnan(share()));
  }
  EXPECT_EQ(FakeNvml::users, 0);
  EXPECT_FALSE(gpu_busy_share(Device("cpu"))) << "a run on CPUs goes on without";
}

TEST_F(Nvml, TellsClockAndPower) {
  {
    const auto state = nvml_state(functions(), "0000:1A:00.0");
    EXPECT_TRUE(std::isnan(state().sm_clock_mhz)) << "an older library ends no run";
    EXPECT_TRUE(std::isnan(state().watts));
  }
  known_["nvmlDeviceGetClockInfo"] = reinterpret_cast<void*>(&read_clock);
  known_["nvmlDeviceGetPowerUsage"] = reinterpret_cast<void*>(&read_power);
  const auto state = nvml_state(functions(), "0000:1A:00.0");
  EXPECT_DOUBLE_EQ(state().sm_clock_mhz, 1755);
  EXPECT_DOUBLE_EQ(state().watts, 695.5);
  FakeNvml::code = 15;
  EXPECT_TRUE(std::isnan(state().sm_clock_mhz));
  EXPECT_FALSE(gpu_state(Device("cpu")));
}

TEST(GpuEnergy, IsRefusedOnTheCpu) {
  expect_error(ErrorKind::kUnsupported, "this run computes on the CPU: drop --log-energy",
               [] { (void)gpu_energy_counter(Device("cpu")); });
}

TEST(EnergyMeter, LeavesPausesOut) {
  double used = 100;
  EnergyMeter meter([&used] { return used; });
  used += 7;
  EXPECT_DOUBLE_EQ(meter.joules(), 7);
  meter.pause();
  used += 50;
  EXPECT_DOUBLE_EQ(meter.joules(), 7);
  meter.resume();
  used += 2;
  EXPECT_DOUBLE_EQ(meter.joules(), 9);
  EXPECT_DOUBLE_EQ(meter.joules(), 9) << "reading changes nothing";
  meter.restart();
  used += 3;
  EXPECT_DOUBLE_EQ(meter.joules(), 3);
}

}  // namespace
}  // namespace pentatron::training

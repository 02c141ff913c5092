// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/gpu_energy.h"

#include <dlfcn.h>

#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::training {
namespace {

constexpr const char* kRemedy = "drop --log-energy";

// Percents, of nvmlDeviceGetUtilizationRates.
struct BusyPercents {
  unsigned int gpu = 0;
  unsigned int memory = 0;
};

// The few functions of NVML's C interface that are used; a code of 0 is success.
struct Nvml {
  using Handle = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*gpu)(const char* pci_bus_id, Handle* gpu) = nullptr;
  int (*millijoules)(Handle gpu, unsigned long long* energy) = nullptr;
  // Null where the library is older.
  int (*busy)(Handle gpu, BusyPercents* percents) = nullptr;
  int (*clock)(Handle gpu, int kind, unsigned int* megahertz) = nullptr;
  int (*power)(Handle gpu, unsigned int* milliwatts) = nullptr;
  const char* (*words)(int code) = nullptr;
};

template <typename Function>
void find(const NvmlFunctions& functions, const char* name, Function& function) {
  function = reinterpret_cast<Function>(functions(name));
  PENTATRON_CHECK(function != nullptr, kUnsupported, "NVIDIA's management library has no {}: {}",
                  name, kRemedy);
}

// NVML counts its users: one is us for as long as a counter lives.
class NvmlSession final {
 public:
  explicit NvmlSession(const NvmlFunctions& functions) {
    find(functions, "nvmlInit_v2", nvml_.init);
    find(functions, "nvmlShutdown", nvml_.shutdown);
    find(functions, "nvmlDeviceGetHandleByPciBusId_v2", nvml_.gpu);
    find(functions, "nvmlDeviceGetTotalEnergyConsumption", nvml_.millijoules);
    find(functions, "nvmlErrorString", nvml_.words);
    nvml_.busy = reinterpret_cast<decltype(nvml_.busy)>(functions("nvmlDeviceGetUtilizationRates"));
    nvml_.clock = reinterpret_cast<decltype(nvml_.clock)>(functions("nvmlDeviceGetClockInfo"));
    nvml_.power = reinterpret_cast<decltype(nvml_.power)>(functions("nvmlDeviceGetPowerUsage"));
    check(nvml_.init(), "does not start");
  }
  ~NvmlSession() { nvml_.shutdown(); }
  NvmlSession(const NvmlSession&) = delete;
  NvmlSession& operator=(const NvmlSession&) = delete;

  [[nodiscard]] const Nvml& functions() const { return nvml_; }
  void check(int code, const std::string& what) const {
    PENTATRON_CHECK(code == 0, kUnsupported, "NVIDIA's management library {}: {}; {}", what,
                    nvml_.words(code), kRemedy);
  }

 private:
  Nvml nvml_;
};

void* open_library(const char* name) {
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  PENTATRON_CHECK(library != nullptr, kUnsupported, "there is no {} on this machine: {}", name,
                  kRemedy);
  return library;
}

// The driver counts GPUs as the tensor library does (CUDA_VISIBLE_DEVICES); NVML counts all.
std::string pci_bus_id(int index) {
  void* driver = open_library("libcuda.so.1");
  const auto init = reinterpret_cast<int (*)(unsigned int)>(::dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto name =
      reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetPCIBusId"));
  std::array<char, 64> text{};
  int gpu = 0;
  PENTATRON_CHECK(
      init != nullptr && get != nullptr && name != nullptr && init(0) == 0 &&
          get(&gpu, index) == 0 && name(text.data(), static_cast<int>(text.size()), gpu) == 0,
      kUnsupported, "the CUDA driver does not tell the PCI address of GPU {}: {}", index, kRemedy);
  return text.data();
}

}  // namespace

EnergyCounter nvml_energy_counter(const NvmlFunctions& functions, const std::string& pci_bus_id) {
  const auto session = std::make_shared<const NvmlSession>(functions);
  Nvml::Handle gpu = nullptr;
  session->check(session->functions().gpu(pci_bus_id.c_str(), &gpu),
                 "does not know the GPU at " + pci_bus_id);
  unsigned long long first = 0;
  session->check(session->functions().millijoules(gpu, &first),
                 "counts no energy of the GPU at " + pci_bus_id);
  return [session, gpu] {
    constexpr double kJoulesPerMillijoule = 1e-3;
    unsigned long long energy = 0;
    if (session->functions().millijoules(gpu, &energy) != 0) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return static_cast<double>(energy) * kJoulesPerMillijoule;
  };
}

EnergyCounter gpu_energy_counter(Device device) {
  PENTATRON_CHECK(device.is_cuda(), kUnsupported,
                  "--log-energy reads the energy counters of NVIDIA GPUs, and this run computes "
                  "on the CPU: {}",
                  kRemedy);
  void* library = open_library("libnvidia-ml.so.1");
  return nvml_energy_counter([library](const char* name) { return ::dlsym(library, name); },
                             pci_bus_id(static_cast<int>(device.index())));
}

std::function<double()> nvml_busy_share(const NvmlFunctions& functions,
                                        const std::string& pci_bus_id) {
  const auto session = std::make_shared<const NvmlSession>(functions);
  Nvml::Handle gpu = nullptr;
  session->check(session->functions().gpu(pci_bus_id.c_str(), &gpu),
                 "does not know the GPU at " + pci_bus_id);
  BusyPercents first;
  PENTATRON_CHECK(
      session->functions().busy != nullptr && session->functions().busy(gpu, &first) == 0,
      kUnsupported, "NVIDIA's management library does not tell how busy the GPU at {} is",
      pci_bus_id);
  return [session, gpu] {
    BusyPercents percents;
    if (session->functions().busy(gpu, &percents) != 0) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return static_cast<double>(percents.gpu) / 100;
  };
}

std::function<double()> gpu_busy_share(Device device) {
  if (!device.is_cuda()) return {};
  try {
    void* library = open_library("libnvidia-ml.so.1");
    return nvml_busy_share([library](const char* name) { return ::dlsym(library, name); },
                           pci_bus_id(static_cast<int>(device.index())));
  } catch (const Error&) {
    return {};
  }
}

std::function<GpuState()> nvml_state(const NvmlFunctions& functions,
                                     const std::string& pci_bus_id) {
  const auto session = std::make_shared<const NvmlSession>(functions);
  Nvml::Handle gpu = nullptr;
  session->check(session->functions().gpu(pci_bus_id.c_str(), &gpu),
                 "does not know the GPU at " + pci_bus_id);
  return [session, gpu] {
    constexpr int kMultiprocessors = 1;  // NVML_CLOCK_SM
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    constexpr double kWattsPerMilliwatt = 1e-3;
    const Nvml& nvml = session->functions();
    unsigned int megahertz = 0, milliwatts = 0;
    GpuState state{.sm_clock_mhz = kUnknown, .watts = kUnknown};
    if (nvml.clock != nullptr && nvml.clock(gpu, kMultiprocessors, &megahertz) == 0) {
      state.sm_clock_mhz = megahertz;
    }
    if (nvml.power != nullptr && nvml.power(gpu, &milliwatts) == 0) {
      state.watts = milliwatts * kWattsPerMilliwatt;
    }
    return state;
  };
}

std::function<GpuState()> gpu_state(Device device) {
  if (!device.is_cuda()) return {};
  try {
    void* library = open_library("libnvidia-ml.so.1");
    return nvml_state([library](const char* name) { return ::dlsym(library, name); },
                      pci_bus_id(static_cast<int>(device.index())));
  } catch (const Error&) {
    return {};
  }
}

EnergyMeter::EnergyMeter(EnergyCounter counter)
    : counter_(std::move(counter)), start_(counter_()) {}

double EnergyMeter::joules() const { return paused_ ? before_ : before_ + counter_() - start_; }

void EnergyMeter::restart() {
  before_ = 0;
  start_ = counter_();
}

void EnergyMeter::pause() {
  before_ = joules();
  paused_ = true;
}

void EnergyMeter::resume() {
  start_ = counter_();
  paused_ = false;
}

}  // namespace pentatron::training

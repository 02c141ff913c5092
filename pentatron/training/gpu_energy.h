// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "pentatron/tensor/tensor.h"

// Energy that GPUs use (--log-energy) and how busy they are, as NVIDIA's management library (NVML)
// counts it.
namespace pentatron::training {

// Joules since some start, never falling; NaN where the GPU no longer tells.
using EnergyCounter = std::function<double()>;

// Address of a function of NVML by its name; null where there is none.
using NvmlFunctions = std::function<void*(const char* name)>;

// Of the whole GPU at that PCI address ("0000:1a:00.0"), however many processes share it.
// kUnsupported error with the library's words when it has no such counter.
[[nodiscard]] EnergyCounter nvml_energy_counter(const NvmlFunctions& functions,
                                                const std::string& pci_bus_id);

// Of the GPU that the device is, through libnvidia-ml.so.1, which is opened here. kUnsupported
// error on the CPU and where there is no such library.
[[nodiscard]] EnergyCounter gpu_energy_counter(Device device);

// The share of time (0 to 1) in which that GPU ran a kernel, in the driver's last sample (a sixth
// of a second to one); NaN where it no longer tells. Errors as of nvml_energy_counter.
[[nodiscard]] std::function<double()> nvml_busy_share(const NvmlFunctions& functions,
                                                      const std::string& pci_bus_id);
// Of the GPU that the device is; empty on the CPU and where nobody tells: it is no reason to end a
// run.
[[nodiscard]] std::function<double()> gpu_busy_share(Device device);

// What a GPU does at this moment; NaN where it is not told.
struct GpuState {
  double sm_clock_mhz = 0;  // of its multiprocessors
  double watts = 0;         // drawn, averaged by the driver over up to a second
};
// Of the whole GPU at that PCI address. Errors as of nvml_energy_counter.
[[nodiscard]] std::function<GpuState()> nvml_state(const NvmlFunctions& functions,
                                                   const std::string& pci_bus_id);
// Of the GPU that the device is; empty on the CPU and where nobody tells.
[[nodiscard]] std::function<GpuState()> gpu_state(Device device);

// Joules of a window of time, pauses left out.
class EnergyMeter final {
 public:
  explicit EnergyMeter(EnergyCounter counter);
  // Since the last restart (or construction).
  [[nodiscard]] double joules() const;
  void restart();
  void pause();
  void resume();

 private:
  EnergyCounter counter_;
  double before_ = 0;  // of the window's intervals that have ended
  double start_;       // the counter where the current interval began
  bool paused_ = false;
};

}  // namespace pentatron::training

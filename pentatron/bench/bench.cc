// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/bench.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/bench/ceilings.h"
#include "pentatron/bench/kernels.h"
#include "pentatron/bench/train.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/log_format.h"

namespace pentatron::bench {
namespace {

// What was measured on, and with what.
nlohmann::json machine_of(Device device) {
  nlohmann::json machine = {{"device", device.str()},
                            {"date", training::current_datetime()},
                            {"cpus", std::thread::hardware_concurrency()}};
  if (!device.is_cuda()) return machine;
  const tensor::GpuInfo gpu = tensor::gpus().at(static_cast<std::size_t>(device.index()));
  const tensor::CudaVersions versions = tensor::cuda_versions();
  machine["gpu"] = gpu.name;
  machine["memory_bytes"] = gpu.memory_bytes;
  machine["multiprocessors"] = gpu.multiprocessors;
  machine["driver"] = tensor::cuda_version_text(versions.driver);
  machine["runtime"] = tensor::cuda_version_text(versions.runtime);
  machine["cudnn"] = tensor::cudnn_version_text(versions.cudnn);
  return machine;
}

std::string machine_text(const nlohmann::json& machine) {
  if (!machine.contains("gpu")) {
    return fmt::format("CPU, {} hardware threads, {}", machine.at("cpus").get<unsigned>(),
                       machine.at("date").get<std::string>());
  }
  return fmt::format(
      "{}, {} GiB, {} multiprocessors, CUDA runtime {}, driver {}, cuDNN {}, {}",
      machine.at("gpu").get<std::string>(), machine.at("memory_bytes").get<std::int64_t>() >> 30,
      machine.at("multiprocessors").get<int>(), machine.at("runtime").get<std::string>(),
      machine.at("driver").get<std::string>(), machine.at("cudnn").get<std::string>(),
      machine.at("date").get<std::string>());
}

}  // namespace

int run_bench(const BenchRequest& request) {
  tensor::load_cuda_library();
  const Device device = tensor::resolve_device(request.device, 0, 1);
  tensor::set_up_process(/*deterministic=*/false);
  tensor::use_device(device);
  const std::unique_ptr<PowerSampler> power = make_power_sampler(device);
  nlohmann::json result = {{"machine", machine_of(device)}};
  log::print_line(machine_text(result.at("machine")));
  const Ceilings ceilings = measure_ceilings(device, power.get(), result["ceilings"]);
  if (request.kernels) {
    measure_kernels(device, ceilings.copy_bytes_per_second, result["kernels"]);
  }
  bool good = true;
  if (request.train) {
    good = measure_training({.device = device,
                             .ids = request.workloads,
                             .steps = request.steps,
                             .copy_bytes_per_second = ceilings.copy_bytes_per_second,
                             .power = power.get()},
                            result["train"]);
  }
  if (!request.json.empty()) {
    AtomicFile file(request.json);
    file.write(dump_json(result, 1) + "\n");
    file.commit();
  }
  return good ? 0 : 1;
}

}  // namespace pentatron::bench

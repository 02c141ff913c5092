// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tensor/tensor.h"

// Where tensors live. The CUDA library (libpentatron_cuda.so) stands beside the program's library
// and is opened at run time, only where a GPU is; everything here works without it and says why it
// is not there.
namespace pentatron::tensor {

// What was found at load_cuda_library().
struct CudaLibrary {
  bool available = false;
  int gpus = 0;        // GPUs that the driver shows to this process (CUDA_VISIBLE_DEVICES)
  std::string reason;  // why not available; empty otherwise
};

// Looks for a GPU (cheap: asks the driver, if there is one) and opens the CUDA library, once a
// process; later calls return the first answer. Call before the first tensor operation and before
// other threads exist: the tensor library decides early whether it has CUDA. Never throws for a
// missing GPU.
const CudaLibrary& load_cuda_library();

// --device: "cpu", "cuda" (cuda:local_rank) or "auto" (cuda where this machine has a GPU for each
// of its `local_ranks` ranks and the CUDA library can be opened, else cpu). kConfig error: another
// word; a local rank outside [0, local_ranks); cuda that cannot be had, with the count of GPUs and
// the reason; "auto" with some GPUs, but fewer than ranks.
[[nodiscard]] Device resolve_device(std::string_view asked, int local_rank, int local_ranks);

struct GpuInfo {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
};
// GPUs in order; empty unless the CUDA library is loaded.
[[nodiscard]] std::vector<GpuInfo> gpus();

struct CudaVersions {
  int driver = 0;  // as the libraries number themselves: 13000 is 13.0
  int runtime = 0;
  int nccl = 0;  // 22809 is 2.28.9
  int cudnn = 0;
};
// Zeros unless the CUDA library is loaded.
[[nodiscard]] CudaVersions cuda_versions();
// "13.0", "2.28.9": the numbers above as people write them.
[[nodiscard]] std::string cuda_version_text(int version);
[[nodiscard]] std::string nccl_version_text(int version);
[[nodiscard]] std::string cudnn_version_text(int version);

// Makes the GPU the calling thread's current one and starts it; on the CPU nothing. Process-wide
// settings of set_up_process hold for it.
void use_device(Device device);
// Waits until everything queued on the device has run; on the CPU nothing. kCuda error with the
// library's message if something failed there.
void synchronize(Device device);

// The library's allocator on a GPU: bytes now and at most since the last reset. Zeros for the CPU
// (see memory.h for a meter there).
struct DeviceMemory {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;  // held from the driver, cached blocks included
  std::int64_t peak_allocated = 0;
  std::int64_t peak_reserved = 0;
  std::int64_t allocations = 0;         // blocks handed out, now
  std::int64_t device_allocations = 0;  // calls to the driver so far
  std::int64_t retries = 0;             // cache flushed to satisfy an allocation
  std::int64_t out_of_memory = 0;
};
[[nodiscard]] DeviceMemory device_memory(Device device);
void reset_peak_memory(Device device);
// Gives cached blocks back to the driver.
void empty_device_cache();

// Before main returns on any way: waits for this thread's GPU and empties the caches. True if the
// CUDA library is in use: leave with _exit then, so that no destructor meets a driver that is
// shutting down. Never throws.
bool release_devices() noexcept;

}  // namespace pentatron::tensor

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/nccl_backend.h"

#include "pentatron/base/error.h"
#include "pentatron/tensor/device.h"

namespace pentatron::comm {
namespace {

MakeNcclBackend& maker() {
  static MakeNcclBackend make = nullptr;
  return make;
}

}  // namespace

void register_nccl_backend(MakeNcclBackend make) { maker() = make; }

std::unique_ptr<Backend> make_nccl_backend(const NcclOptions& options) {
  const tensor::CudaLibrary& library = tensor::load_cuda_library();
  PENTATRON_CHECK(
      library.available && maker() != nullptr, kUnsupported,
      "--distributed-backend nccl needs a GPU for each rank: {}; use "
      "--distributed-backend gloo with --device cpu",
      library.available ? "this build of the CUDA library has no NCCL" : library.reason);
  PENTATRON_CHECK(options.device.is_cuda(), kConfig,
                  "--distributed-backend nccl with --device {}: it moves tensors between GPUs; "
                  "use --device cuda, or --distributed-backend gloo",
                  options.device.str());
  return maker()(options);
}

}  // namespace pentatron::comm

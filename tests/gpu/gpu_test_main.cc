// SPDX-License-Identifier: Apache-2.0
// main of every GPU test: opens the CUDA library before anything else uses the tensor library, and
// leaves without the destructors that could meet a driver which is shutting down.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  static_cast<void>(pentatron::tensor::load_cuda_library());
  pentatron::tensor::set_up_process(/*deterministic=*/false);
  pentatron::tensor::set_up_rank_thread(1);
  const int code = RUN_ALL_TESTS();
  static_cast<void>(pentatron::tensor::release_devices());
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);
}

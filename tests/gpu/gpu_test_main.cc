// SPDX-License-Identifier: Apache-2.0
// main of every GPU test: opens the CUDA library before anything else uses the tensor library, and
// leaves without the destructors that could meet a driver which is shutting down.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "pentatron/base/temp_folder.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  static_cast<void>(pentatron::tensor::load_cuda_library());
  pentatron::tensor::set_up_process(/*deterministic=*/false);
  pentatron::tensor::set_up_rank_thread(1);
  int code = 0;
  {
    // Choices of algorithms that tests measure do not go to the user's cache.
    const pentatron::TempFolder cache;
    ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
    code = RUN_ALL_TESTS();
  }
  static_cast<void>(pentatron::tensor::release_devices());
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);
}

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/kernel_op.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace pentatron {
namespace {

TEST(KernelOp, NamesThatTracesHave) {
  const std::string own = "void pentatron::kernels::(anonymous namespace)::";
  EXPECT_EQ(op_of_kernel(own + "norm_forward_kernel<__nv_bfloat16, 8>"), "norm");
  EXPECT_EQ(op_of_kernel(own + "gated_backward_kernel<__nv_bfloat16, 8, true>"), "activation");
  EXPECT_EQ(op_of_kernel(own + "softmax_gradient_kernel<__nv_bfloat16>"), "cross entropy");
  EXPECT_EQ(op_of_kernel("void pentatron::kernels::sum_partials_kernel<float, float>"),
            "bias gradient");
  EXPECT_EQ(op_of_kernel("nvjet_tst_192x192_64x3_2x1_v_bz_coopB_TNT"), "product");
  EXPECT_EQ(op_of_kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"), "product");
  EXPECT_EQ(op_of_kernel("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3"),
            "attention");
  EXPECT_EQ(op_of_kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>"),
            "attention");
  EXPECT_EQ(op_of_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), "collective");
  EXPECT_EQ(op_of_kernel("void at::native::vectorized_elementwise_kernel<4>"), "elementwise");
  EXPECT_EQ(op_of_kernel("copy to host"), "copy to host");
  EXPECT_EQ(op_of_kernel("somebody's"), "other");
}

// Whoever adds a kernel says what it is for.
TEST(KernelOp, KnowsEveryKernelOfOurs) {
  const std::regex kernel(R"((\w+_kernel)\s*\()");
  int found = 0;
  const char* root = std::getenv("PENTATRON_SOURCE_DIR");
  ASSERT_NE(root, nullptr) << "set PENTATRON_SOURCE_DIR to the repository";
  const std::filesystem::path folder = std::filesystem::path(root) / "pentatron" / "kernels";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".cu" && extension != ".cuh") continue;
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator at(source.begin(), source.end(), kernel), end; at != end; ++at) {
      const std::string name = (*at)[1];
      if (name == "philox_kernel") continue;  // of a test
      ++found;
      EXPECT_NE(op_of_kernel("pentatron::kernels::" + name), "other")
          << name << " in " << entry.path();
    }
  }
  EXPECT_GT(found, 20);
}

}  // namespace
}  // namespace pentatron

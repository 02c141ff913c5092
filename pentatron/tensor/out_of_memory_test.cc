// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/out_of_memory.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::tensor {
namespace {

TEST(OutOfMemory, A11_BytesAskedAndInUse) {
  std::string text;
  try {
    // More than any machine's address space has for one tensor.
    (void)empty({std::int64_t{1} << 47}, parse_dtype("fp32"));
  } catch (const std::exception& error) {
    text = out_of_memory_text(error);
  }
  EXPECT_NE(text.find("out of memory: asked for 563 TB, "), std::string::npos) << text;
  EXPECT_NE(text.find(" in use"), std::string::npos) << text;
  EXPECT_NE(text.find("--micro-batch-size"), std::string::npos) << text;
}

TEST(OutOfMemory, A11_OtherErrorsAreNot) {
  EXPECT_EQ(out_of_memory_text(std::runtime_error("can't allocate memory")), "");
}

}  // namespace
}  // namespace pentatron::tensor

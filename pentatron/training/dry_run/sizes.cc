// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dry_run/sizes.h"

#include "pentatron/base/error.h"

namespace pentatron::training::dry_run {

std::int64_t product(std::initializer_list<std::int64_t> sizes) {
  // Sums of thousands of tensors stay in 64 bits.
  constexpr std::int64_t kLimit = std::int64_t{1} << 50;
  std::int64_t bytes = 1;
  for (const std::int64_t size : sizes) {
    const bool overflow = __builtin_mul_overflow(bytes, size, &bytes);
    PENTATRON_CHECK(
        !overflow && bytes >= 0 && bytes <= kLimit, kConfig,
        "--dry-run: a tensor would have more than 2^50 bytes: lower --micro-batch-size, "
        "--seq-length or the model's sizes");
  }
  return bytes;
}

}  // namespace pentatron::training::dry_run

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/op_table.h"

#include <atomic>

#include "pentatron/base/error.h"
#include "pentatron/ops/cpu_ops.h"

namespace pentatron::ops {
namespace {

constexpr OpTable kCpuTable = {
#define PENTATRON_OP(result, name, arguments) .name = cpu::name,
#include "pentatron/ops/op_functions.inc"
};

// Written once, when the CUDA library is loaded.
std::atomic<const OpTable*>& cuda_table() {
  static std::atomic<const OpTable*> table{nullptr};
  return table;
}

}  // namespace

const OpTable& op_table(Device device) {
  if (device.is_cpu()) return kCpuTable;
  PENTATRON_CHECK(device.is_cuda(), kUnsupported, "ops run on cpu and cuda, not on {}",
                  device.str());
  const OpTable* table = cuda_table().load(std::memory_order_acquire);
  PENTATRON_CHECK(
      table != nullptr, kUnsupported,
      "an op on {} was asked for, but the CUDA library (libpentatron_cuda.so) is not loaded",
      device.str());
  return *table;
}

void register_cuda_op_table(const OpTable& table) {
  const OpTable* expected = nullptr;
  PENTATRON_CHECK(cuda_table().compare_exchange_strong(expected, &table) || expected == &table,
                  kInternal, "a second table of CUDA ops was registered");
}

}  // namespace pentatron::ops

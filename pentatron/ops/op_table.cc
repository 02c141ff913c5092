// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/op_table.h"

#include <atomic>

#include "pentatron/base/error.h"
#include "pentatron/ops/cpu_ops.h"

namespace pentatron::ops {
namespace {

constexpr OpTable kCpuTable = {
    .norm_forward = cpu::norm_forward,
    .norm_backward = cpu::norm_backward,
    .gelu_forward = cpu::gelu_forward,
    .gelu_backward = cpu::gelu_backward,
    .swiglu_forward = cpu::swiglu_forward,
    .swiglu_backward = cpu::swiglu_backward,
    .dropout = cpu::dropout,
    .rotate = cpu::rotate,
    .embedding_forward = cpu::embedding_forward,
    .embedding_backward = cpu::embedding_backward,
    .column_sums = cpu::column_sums,
    .row_max = cpu::row_max,
    .softmax_pieces = cpu::softmax_pieces,
    .softmax_gradient_ = cpu::softmax_gradient_,
    .attention_forward = cpu::attention_forward,
    .attention_backward = cpu::attention_backward,
    .adamw_step = cpu::adamw_step,
    .sgd_step = cpu::sgd_step,
    .sum_of_squares = cpu::sum_of_squares,
};

// Written once, when the CUDA half is loaded.
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
      "an op on {} was asked for, but the CUDA half (libpentatron_cuda.so) is not loaded",
      device.str());
  return *table;
}

void register_cuda_op_table(const OpTable& table) {
  const OpTable* expected = nullptr;
  PENTATRON_CHECK(cuda_table().compare_exchange_strong(expected, &table) || expected == &table,
                  kInternal, "a second table of CUDA ops was registered");
}

}  // namespace pentatron::ops

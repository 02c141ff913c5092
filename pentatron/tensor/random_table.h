// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/random.h"

// What keyed random numbers need of a device; arguments are checked by random.cc.
namespace pentatron::tensor {

// Initial values of a box: factor times the value of each global element, in fp64, rounded once.
struct KeyedFill {
  bool normal = true;  // else uniform in [-1, 1)
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  double factor = 1.0;
  const Shape& logical;  // as many dimensions as the tensor
  const Shape& offsets;
};

struct AttentionDrop {
  RngSite site;
  std::uint32_t threshold;  // 16-bit draws from here on are kept
  double factor;
  std::int64_t head_begin;
  // int64: of each query its sample and place, of each key its place
  const Tensor& sample_ids_q;
  const Tensor& places_q;
  const Tensor& places_k;
};

struct RandomTable {
  Tensor (*dropout_keep_mask)(RngSite site, std::uint32_t threshold, const Tensor& sample_ids_t,
                              const Tensor& token_index_t, std::int64_t channel_begin,
                              std::int64_t num_channels);
  void (*stochastic_round_bf16)(const Tensor& out_bf16, const Tensor& in_fp32, RngSite site,
                                std::int64_t step, std::int64_t bucket, std::int64_t first_element);
  void (*fill)(const Tensor& out, const KeyedFill& fill);  // contiguous
  // In place, p [heads, queries, keys] in fp32 or fp64, any float factor: p = kept ? p * factor :
  // 0, by the draws of ops/attention.h. Null on the CPU, whose attention has them in its kernel.
  void (*drop_attention)(const Tensor& p_nqk, const AttentionDrop& drop);
  // Philox4x32-10 itself, for known answers: counters [n, 4], keys [n, 2], words [n, 4], the bits
  // of 32-bit words as int32.
  Tensor (*philox_words)(const Tensor& counters_n4, const Tensor& keys_n2);
};

// kUnsupported for CUDA before the CUDA library is loaded.
[[nodiscard]] const RandomTable& random_table(Device device);
// Called once, when the CUDA library is loaded, before rank threads start; `table` lives as long as
// the process.
void register_cuda_random_table(const RandomTable& table);

}  // namespace pentatron::tensor

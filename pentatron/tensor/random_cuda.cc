// SPDX-License-Identifier: Apache-2.0
// Keyed random numbers on GPUs, and what the library's products may round there.
#include <ATen/Context.h>

#include "pentatron/base/error.h"
#include "pentatron/kernels/random.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random_table.h"
#include "pentatron/tensor/register_cuda.h"

namespace pentatron::tensor {
namespace {

Tensor keep_mask(RngSite site, std::uint32_t threshold, const Tensor& sample_ids_t,
                 const Tensor& token_index_t, std::int64_t channel_begin,
                 std::int64_t num_channels) {
  const std::int64_t rows = sample_ids_t.size(0);
  Tensor keep = empty({rows, num_channels}, DType::Byte, sample_ids_t.device());
  check_launch(
      kernels::dropout_keep_mask(
          keep.data_ptr<std::uint8_t>(),
          {.site = site.key, .threshold = threshold, .channel_begin = channel_begin},
          sample_ids_t.const_data_ptr<std::int64_t>(), token_index_t.const_data_ptr<std::int64_t>(),
          rows, num_channels, stream_of(keep)),
      "dropout_keep_mask");
  return keep;
}

void stochastic_round(const Tensor& out_bf16, const Tensor& in_fp32, RngSite site,
                      std::int64_t step, std::int64_t bucket, std::int64_t first_element) {
  check_launch(
      kernels::stochastic_round_bf16(
          in_fp32.const_data_ptr<float>(), static_cast<std::uint16_t*>(write(out_bf16)),
          {.site = site.key, .step = step, .bucket = bucket, .first_element = first_element},
          in_fp32.numel(), stream_of(in_fp32)),
      "stochastic_round_bf16");
}

void drop_attention(const Tensor& p_nqk, const AttentionDrop& drop) {
  check_launch(
      kernels::drop_attention(kernel_type(p_nqk.scalar_type()), write(p_nqk),
                              {.site = drop.site.key,
                               .threshold = drop.threshold,
                               .head_begin = drop.head_begin,
                               .heads = p_nqk.size(0),
                               .queries = p_nqk.size(1),
                               .keys = p_nqk.size(2)},
                              drop.factor, drop.sample_ids_q.const_data_ptr<std::int64_t>(),
                              drop.places_q.const_data_ptr<std::int64_t>(),
                              drop.places_k.const_data_ptr<std::int64_t>(), stream_of(p_nqk)),
      "drop_attention");
}

void fill(const Tensor& out, const KeyedFill& fill) {
  constexpr std::size_t kRank = kernels::KeyedBox::kRank;
  const Shape sizes = shape_of(out);
  PENTATRON_CHECK(sizes.size() <= kRank, kUnsupported,
                  "initial values of {} dimensions on a GPU, at most {}", sizes.size(), kRank);
  kernels::KeyedBox box{};
  for (std::size_t d = 0; d < kRank; ++d) {
    const bool used = d + sizes.size() >= kRank;
    const std::size_t own = d + sizes.size() - kRank;
    box.sizes[d] = used ? sizes[own] : 1;
    box.logical[d] = used ? fill.logical[own] : 1;
    box.offsets[d] = used ? fill.offsets[own] : 0;
  }
  check_launch(
      kernels::fill_keyed(
          kernel_type(out.scalar_type()), write(out),
          {.normal = fill.normal, .seed = fill.seed, .stream = fill.stream, .factor = fill.factor},
          box, stream_of(out)),
      "fill_keyed");
}

Tensor philox_words(const Tensor& counters_n4, const Tensor& keys_n2) {
  Tensor words_n4 = empty(counters_n4.sizes(), DType::Int, counters_n4.device());
  check_launch(kernels::philox_words(static_cast<const std::uint32_t*>(read(counters_n4)),
                                     static_cast<const std::uint32_t*>(read(keys_n2)),
                                     static_cast<std::uint32_t*>(write(words_n4)),
                                     counters_n4.size(0), stream_of(counters_n4)),
               "philox_words");
  return words_n4;
}

constexpr RandomTable kCudaTable = {.dropout_keep_mask = keep_mask,
                                    .stochastic_round_bf16 = stochastic_round,
                                    .fill = fill,
                                    .drop_attention = drop_attention,
                                    .philox_words = philox_words};

}  // namespace

void register_cuda_tensor() {
  register_cuda_random_table(kCudaTable);
  // Products of 16-bit floats are summed in fp32, also where a product is split.
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
}

}  // namespace pentatron::tensor

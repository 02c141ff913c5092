// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/random.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/random_table.h"

namespace pentatron {

RngSite make_site(std::uint64_t seed, std::string_view global_site_name) {
  const PhiloxWords words = philox_words(seed, fnv1a64(global_site_name), 0);
  return {.key = (static_cast<std::uint64_t>(words.v[1]) << 32) | words.v[0]};
}

namespace tensor {
namespace {

constexpr std::int64_t kDrawsPerCall = 8;

// One row: channels [begin, begin + count) of the global numbering.
void keep_row(PhiloxKey key, std::uint32_t threshold, std::int64_t sample, std::int64_t token,
              std::int64_t begin, std::int64_t count, std::uint8_t* keep) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t channel = begin + done;
    const PhiloxWords counter = {
        {static_cast<std::uint32_t>(channel / kDrawsPerCall), static_cast<std::uint32_t>(token),
         static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)}};
    const PhiloxDraws draws = philox_draws(philox4x32_10(counter, key));
    for (std::int64_t lane = channel % kDrawsPerCall; lane < kDrawsPerCall && done < count;
         ++lane) {
      keep[done++] = draws.v[lane] >= threshold ? 1 : 0;
    }
  }
}

// Value of one element, from (seed, stream, global index).
using KeyedValue = double (*)(std::uint64_t, std::uint64_t, std::uint64_t);

template <typename T>
void fill_rows(T* out, const Shape& sizes, const KeyedFill& fill) {
  const KeyedValue value = fill.normal ? philox_normal : philox_centred;
  const Shape &logical = fill.logical, &offsets = fill.offsets;
  const std::size_t rank = sizes.size();
  const std::int64_t row = rank == 0 ? 1 : sizes[rank - 1];
  const std::int64_t rows = row == 0 ? 0 : num_elements(sizes) / row;
  parallel_for(0, rows, std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(row, 1)),
               [&](std::int64_t from, std::int64_t to) {
                 for (std::int64_t r = from; r < to; ++r) {
                   // The global index of the row's first element, from the last outer dimension
                   // inwards.
                   std::int64_t rest = r, base = rank == 0 ? 0 : offsets[rank - 1];
                   std::int64_t stride = rank == 0 ? 1 : logical[rank - 1];
                   for (std::size_t d = rank == 0 ? 0 : rank - 1; d-- > 0;) {
                     base += (rest % sizes[d] + offsets[d]) * stride;
                     rest /= sizes[d];
                     stride *= logical[d];
                   }
                   for (std::int64_t i = 0; i < row; ++i) {
                     const auto index = static_cast<std::uint64_t>(base + i);
                     out[r * row + i] =
                         static_cast<T>(fill.factor * value(fill.seed, fill.stream, index));
                   }
                 }
               });
}

Tensor cpu_keep_mask(RngSite site, std::uint32_t threshold, const Tensor& sample_ids_t,
                     const Tensor& token_index_t, std::int64_t channel_begin,
                     std::int64_t num_channels) {
  const std::int64_t rows = sample_ids_t.size(0);
  Tensor keep = empty({rows, num_channels}, DType::Byte);
  const auto* samples = sample_ids_t.const_data_ptr<std::int64_t>();
  const auto* tokens = token_index_t.const_data_ptr<std::int64_t>();
  auto* mask = keep.data_ptr<std::uint8_t>();
  const PhiloxKey key = {
      {static_cast<std::uint32_t>(site.key), static_cast<std::uint32_t>(site.key >> 32)}};
  parallel_for(0, rows, 8, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t r = from; r < to; ++r) {
      keep_row(key, threshold, samples[r], tokens[r], channel_begin, num_channels,
               mask + r * num_channels);
    }
  });
  return keep;
}

void cpu_stochastic_round(const Tensor& out_bf16, const Tensor& in_fp32, RngSite site,
                          std::int64_t step, std::int64_t bucket, std::int64_t first_element) {
  const std::int64_t count = in_fp32.numel();
  const PhiloxKey key = {
      {static_cast<std::uint32_t>(site.key), static_cast<std::uint32_t>(site.key >> 32)}};
  const float* in = in_fp32.const_data_ptr<float>();
  auto* out = static_cast<std::uint16_t*>(out_bf16.mutable_data_ptr());
  parallel_for(0, count, 4096, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to;) {
      const std::int64_t element = first_element + i;
      const PhiloxWords counter = {
          {static_cast<std::uint32_t>(element / kDrawsPerCall), static_cast<std::uint32_t>(bucket),
           static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)}};
      const PhiloxDraws draws = philox_draws(philox4x32_10(counter, key));
      for (std::int64_t lane = element % kDrawsPerCall; lane < kDrawsPerCall && i < to;
           ++lane, ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(in[i]);
        const std::uint32_t rounded = (bits + draws.v[lane]) >> 16;
        // The carry of a NaN could run into its sign, and its set bits could all be dropped.
        const bool nan = (bits & 0x7fffffff) > 0x7f800000;
        out[i] = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
      }
    }
  });
}

Tensor cpu_philox_words(const Tensor& counters_n4, const Tensor& keys_n2) {
  Tensor words_n4 = empty(counters_n4.sizes(), DType::Int);
  const auto* counters = counters_n4.const_data_ptr<std::int32_t>();
  const auto* keys = keys_n2.const_data_ptr<std::int32_t>();
  auto* words = words_n4.data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < counters_n4.size(0); ++i) {
    PhiloxWords counter{};
    PhiloxKey key{};
    for (int w = 0; w < 4; ++w) counter.v[w] = static_cast<std::uint32_t>(counters[4 * i + w]);
    for (int w = 0; w < 2; ++w) key.v[w] = static_cast<std::uint32_t>(keys[2 * i + w]);
    const PhiloxWords out = philox4x32_10(counter, key);
    for (int w = 0; w < 4; ++w) words[4 * i + w] = static_cast<std::int32_t>(out.v[w]);
  }
  return words_n4;
}

void cpu_fill(const Tensor& out, const KeyedFill& fill) {
  const Shape sizes = shape_of(out);
  switch (out.scalar_type()) {
    case DType::Double:
      return fill_rows(out.data_ptr<double>(), sizes, fill);
    case DType::Float:
      return fill_rows(out.data_ptr<float>(), sizes, fill);
    default: {
      // Rounded once, from fp64.
      Tensor wide = empty(sizes, DType::Double);
      fill_rows(wide.data_ptr<double>(), sizes, fill);
      out.copy_(wide);
    }
  }
}

constexpr RandomTable kCpuTable = {.dropout_keep_mask = cpu_keep_mask,
                                   .stochastic_round_bf16 = cpu_stochastic_round,
                                   .fill = cpu_fill,
                                   .philox_words = cpu_philox_words};

// Written once, when the CUDA library is loaded.
std::atomic<const RandomTable*>& cuda_table() {
  static std::atomic<const RandomTable*> table{nullptr};
  return table;
}

}  // namespace

const RandomTable& random_table(Device device) {
  if (device.is_cpu()) return kCpuTable;
  const RandomTable* table =
      device.is_cuda() ? cuda_table().load(std::memory_order_acquire) : nullptr;
  PENTATRON_CHECK(table != nullptr, kUnsupported,
                  "keyed random numbers on {} were asked for, but the CUDA library "
                  "(libpentatron_cuda.so) is not loaded",
                  device.str());
  return *table;
}

void register_cuda_random_table(const RandomTable& table) {
  const RandomTable* expected = nullptr;
  PENTATRON_CHECK(cuda_table().compare_exchange_strong(expected, &table) || expected == &table,
                  kInternal, "a second table of CUDA random numbers was registered");
}

std::uint32_t dropout_threshold(double p) {
  PENTATRON_CHECK(p >= 0.0 && p < 1.0, kConfig,
                  "a dropout probability must be in [0, 1), got {} (--hidden-dropout, "
                  "--attention-dropout)",
                  p);
  return static_cast<std::uint32_t>(std::lround(p * 65536.0));
}

Tensor dropout_keep_mask(RngSite site, double p, const Tensor& sample_ids_t,
                         const Tensor& token_index_t, std::int64_t channel_begin,
                         std::int64_t num_channels) {
  const std::uint32_t threshold = dropout_threshold(p);
  PENTATRON_CHECK(sample_ids_t.scalar_type() == DType::Long && sample_ids_t.is_contiguous() &&
                      token_index_t.scalar_type() == DType::Long && token_index_t.is_contiguous() &&
                      sample_ids_t.dim() == 1 && sample_ids_t.sizes() == token_index_t.sizes(),
                  kInternal, "dropout wants int64 [tokens] ids and indices, got {} and {}",
                  describe(sample_ids_t), describe(token_index_t));
  PENTATRON_CHECK(channel_begin >= 0 && num_channels >= 0, kInternal,
                  "dropout over channels [{}, +{})", channel_begin, num_channels);
  return random_table(sample_ids_t.device())
      .dropout_keep_mask(site, threshold, sample_ids_t, token_index_t, channel_begin, num_channels);
}

namespace {

void fill_keyed(const Tensor& out, std::string_view part_name, const KeyedFill& fill) {
  const Shape sizes = shape_of(out);
  const Shape &logical = fill.logical, &offsets = fill.offsets;
  PENTATRON_CHECK(
      sizes.size() == logical.size() && sizes.size() == offsets.size() && out.is_contiguous(),
      kInternal,
      "initial values of '{}': box and logical shape differ in rank or the "
      "tensor is not contiguous",
      part_name);
  (void)num_elements(logical);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    PENTATRON_CHECK(offsets[d] >= 0 && offsets[d] + sizes[d] <= logical[d], kInternal,
                    "initial values of '{}': box [{}, +{}) leaves dimension {} of size {}",
                    part_name, offsets[d], sizes[d], d, logical[d]);
  }
  const NoGrad no_grad;
  random_table(out.device()).fill(out, fill);
}

}  // namespace

void fill_normal_keyed(Tensor out, std::uint64_t seed, std::string_view part_name, double std,
                       const Shape& logical_shape, const Shape& offsets) {
  fill_keyed(out, part_name,
             {.normal = true,
              .seed = seed,
              .stream = fnv1a64(part_name),
              .factor = std,
              .logical = logical_shape,
              .offsets = offsets});
}

void fill_uniform_keyed(Tensor out, std::uint64_t seed, std::string_view part_name, double bound,
                        const Shape& logical_shape, const Shape& offsets) {
  fill_keyed(out, part_name,
             {.normal = false,
              .seed = seed,
              .stream = fnv1a64(part_name),
              .factor = bound,
              .logical = logical_shape,
              .offsets = offsets});
}

void stochastic_round_bf16_keyed(Tensor out_bf16, const Tensor& in_fp32, std::uint64_t seed,
                                 std::int64_t step, std::int64_t bucket,
                                 std::int64_t first_element) {
  PENTATRON_CHECK(out_bf16.scalar_type() == DType::BFloat16 && out_bf16.is_contiguous() &&
                      in_fp32.scalar_type() == DType::Float && in_fp32.is_contiguous() &&
                      out_bf16.sizes() == in_fp32.sizes(),
                  kInternal, "stochastic rounding from {} to {}", describe(in_fp32),
                  describe(out_bf16));
  const std::int64_t count = in_fp32.numel();
  constexpr std::int64_t kMaxElements = kDrawsPerCall << 32;
  PENTATRON_CHECK(step >= 0 && bucket >= 0 && bucket < (std::int64_t{1} << 32) &&
                      first_element >= 0 && first_element <= kMaxElements - count,
                  kInternal, "stochastic rounding of elements [{}, +{}) of bucket {} at step {}",
                  first_element, count, bucket, step);
  random_table(out_bf16.device())
      .stochastic_round_bf16(out_bf16, in_fp32, make_site(seed, "stochastic_rounding"), step,
                             bucket, first_element);
}

}  // namespace tensor
}  // namespace pentatron

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/narrow_adamw.h"

#include <algorithm>
#include <atomic>

#include "pentatron/base/error.h"
#include "pentatron/ops/cpu_ops.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/random.h"

namespace pentatron::ops {
namespace {

constexpr DType kComputed = DType::Float;
constexpr DType kNarrow = DType::BFloat16;
// Widened at a time, so that the room beside the state stays small.
constexpr std::int64_t kWidened = 1 << 18;

std::atomic<NarrowAdamW>& cuda_implementation() {
  static std::atomic<NarrowAdamW> implementation{nullptr};
  return implementation;
}

bool fp32_or_bf16(const Tensor& t) {
  return t.scalar_type() == kComputed || t.scalar_type() == kNarrow;
}

void check_segment(const NarrowSegment& segment, const NarrowSegment& model) {
  const auto& [param, grad, first, second, decays, rate, eps_factor] = segment.update;
  const UpdateSegment& like = model.update;
  for (const auto& [t, same] : {std::pair{&param, &like.param}, std::pair{&grad, &like.grad},
                                std::pair{&first, &like.first}, std::pair{&second, &like.second}}) {
    PENTATRON_CHECK(t->defined() && same->defined() && t->is_contiguous() && fp32_or_bf16(*t) &&
                        t->numel() == param.numel() && t->device() == like.param.device() &&
                        t->scalar_type() == same->scalar_type(),
                    kInternal, "an optimizer step in bf16 and fp32 cannot take {} beside {} and {}",
                    tensor::describe(*t), tensor::describe(*same), tensor::describe(param));
  }
  const ElementPlace& place = segment.place;
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 35;
  const std::int64_t rows = (place.first + param.numel() + place.width - 1) / place.width;
  PENTATRON_CHECK(place.width >= 1 && place.first >= 0 && place.logical_width >= place.width &&
                      (place.row_offset + rows) * place.logical_width <= kMaxElements,
                  kInternal, "{} elements from {} of a box of {} columns in {} have no draws",
                  param.numel(), place.first, place.width, place.logical_width);
}

// The number in the logical tensor.
std::int64_t element_of(const ElementPlace& place, std::int64_t local) {
  const std::int64_t inside = place.first + local;
  return (inside / place.width + place.row_offset) * place.logical_width + place.column_offset +
         inside % place.width;
}

// kept := wide, of elements [begin, begin + wide.numel()) of the slice.
void keep(const Tensor& kept, const Tensor& wide, const ElementPlace& place, std::int64_t begin,
          std::uint32_t stream, std::int64_t step, std::uint64_t seed) {
  if (kept.scalar_type() == wide.scalar_type()) return;  // updated where it lies
  const std::int64_t count = wide.numel();
  for (std::int64_t at = 0; at < count;) {
    // Elements that follow each other in the logical tensor too.
    std::int64_t run = count - at;
    if (place.width != place.logical_width) {
      run = std::min(run, place.width - (place.first + begin + at) % place.width);
    }
    tensor::stochastic_round_bf16_keyed(kept.narrow(0, at, run), wide.narrow(0, at, run), seed,
                                        step, stream, element_of(place, begin + at));
    at += run;
  }
}

// The readable reference: widen, update in fp32, round.
void on_cpu(NarrowSegments segments, const AdamScalars& scalars, const AdamOptions& options,
            std::uint64_t seed) {
  if (scalars.skip.defined() && *scalars.skip.const_data_ptr<double>() != 0.0) return;
  const auto step = static_cast<std::int64_t>(*scalars.step.const_data_ptr<double>());
  for (const NarrowSegment& segment : segments) {
    const UpdateSegment& all = segment.update;
    for (std::int64_t begin = 0; begin < all.param.numel(); begin += kWidened) {
      const std::int64_t count = std::min(kWidened, all.param.numel() - begin);
      const Tensor kept[] = {all.param.narrow(0, begin, count), all.first.narrow(0, begin, count),
                             all.second.narrow(0, begin, count)};
      UpdateSegment wide = all;
      wide.grad = all.grad.narrow(0, begin, count);
      wide.param = tensor::cast(kept[0], kComputed);
      wide.first = tensor::cast(kept[1], kComputed);
      wide.second = tensor::cast(kept[2], kComputed);
      cpu::adamw_step({&wide, 1}, scalars, options);
      keep(kept[0], wide.param, segment.place, begin, segment.streams.param, step, seed);
      keep(kept[1], wide.first, segment.place, begin, segment.streams.first, step, seed);
      keep(kept[2], wide.second, segment.place, begin, segment.streams.second, step, seed);
    }
  }
}

}  // namespace

void register_cuda_narrow_adamw(NarrowAdamW implementation) {
  cuda_implementation().store(implementation);
}

void narrow_adamw_step(NarrowSegments segments, const AdamScalars& scalars,
                       const AdamOptions& options, std::uint64_t seed) {
  if (segments.empty()) return;
  for (const NarrowSegment& segment : segments) check_segment(segment, segments[0]);
  const Device device = segments[0].update.param.device();
  if (device.is_cpu()) {
    on_cpu(segments, scalars, options, seed);
    return;
  }
  const NarrowAdamW implementation = cuda_implementation().load();
  PENTATRON_CHECK(implementation != nullptr, kUnsupported,
                  "an update on {} needs the CUDA library, which is not loaded", device.str());
  implementation(segments, scalars, options, seed);
}

}  // namespace pentatron::ops

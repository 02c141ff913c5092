// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/sgemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "pentatron/base/error.h"
#include "pentatron/tensor/parallel.h"

// Function targets and their pragmas are GCC's.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PENTATRON_OWN_SGEMM 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define PENTATRON_OWN_SGEMM 0
#endif

namespace pentatron::tensor {
namespace {

// Intel's processors: more than this many multiplications, or sums longer than this, and MKL is
// faster.
constexpr std::int64_t kMaxMultiplications = std::int64_t{1} << 24;
constexpr std::int64_t kMaxDepth = 1024;
// A block of a, 396 KiB, stays in the second-level cache and kBlockColumns of c and b in the third.
constexpr std::int64_t kBlockRows = 264, kBlockDepth = 384, kBlockColumns = 2048;
// Rows of b so many numbers apart lie in pages of their own.
constexpr std::int64_t kFarApart = 512;
// From so many rows and columns on packing b and a earns what it costs.
constexpr std::int64_t kPackFromRows = 24, kPackFromColumns = 320;
// What a thread gets at least: less is done before it has woken up.
constexpr std::int64_t kGrain = std::int64_t{1} << 18;

#if PENTATRON_OWN_SGEMM

#define PENTATRON_ALWAYS __attribute__((always_inline)) inline

std::int64_t whole(std::int64_t count, std::int64_t of) { return (count + of - 1) / of * of; }

// Packed operands; kept by the thread, since products of a step follow each other.
float* scratch_of(std::int64_t count) {
  constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(float* x) const { ::operator delete[](x, kAlign); }
  };
  thread_local std::unique_ptr<float[], Free> memory;
  thread_local std::int64_t capacity = 0;
  if (count > capacity) {
    memory.reset();
    capacity = 0;
    memory.reset(static_cast<float*>(
        ::operator new[](static_cast<std::size_t>(count) * sizeof(float), kAlign)));
    capacity = count;
  }
  return memory.get();
}

// How a tile reads a: as [m, k], as [k, m], or as panels [k, rows of a tile].
enum class Reading { kRows, kColumns, kPacked };

// The lines of the next panel of b, asked for a few at a time while this one is multiplied: its
// rows lie too far apart for the processor to foresee them.
class Ahead final {
 public:
  Ahead() = default;
  // `rows` rows of `columns` numbers, `stride` apart; `tile_rows` rows of c are still to come.
  Ahead(const float* first, std::int64_t stride, std::int64_t rows, std::int64_t columns,
        std::int64_t tile_rows)
      : row_(first), stride_(stride), rows_(columns > 0 ? rows : 0), columns_(columns) {
    const std::int64_t lines = rows_ * ((columns + kLine - 1) / kLine);
    lines_per_row_ = (lines + tile_rows - 1) / std::max<std::int64_t>(tile_rows, 1);
  }
  PENTATRON_ALWAYS void fetch(std::int64_t tile_rows) {
    for (std::int64_t i = 0; i < tile_rows * lines_per_row_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + column_, 0, 2);
      column_ += kLine;
      if (column_ >= columns_) {
        column_ = 0;
        row_ += stride_;
        --rows_;
      }
    }
  }

 private:
  static constexpr std::int64_t kLine = 16;  // numbers in a cache line
  const float* row_ = nullptr;
  std::int64_t stride_ = 0, rows_ = 0, columns_ = 0, column_ = 0, lines_per_row_ = 0;
};

namespace avx512 {
#define PENTATRON_TARGET __attribute__((target("avx512f")))
#define PENTATRON_TARGET_LAMBDA __attribute__((target("avx512f"), always_inline))
using Vector = __m512;
using Mask = __mmask16;
constexpr int kWidth = 16, kVectors = 4, kSums = 24;
constexpr bool kPackAlways = false;
PENTATRON_TARGET PENTATRON_ALWAYS Vector zero() { return _mm512_setzero_ps(); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector load(const float* x) { return _mm512_loadu_ps(x); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector load_masked(const float* x, Mask mask) {
  return _mm512_maskz_loadu_ps(mask, x);
}
PENTATRON_TARGET PENTATRON_ALWAYS void store(float* x, Vector v) { _mm512_storeu_ps(x, v); }
PENTATRON_TARGET PENTATRON_ALWAYS void store_masked(float* x, Vector v, Mask mask) {
  _mm512_mask_storeu_ps(x, mask, v);
}
PENTATRON_TARGET PENTATRON_ALWAYS Vector broadcast(const float* x) { return _mm512_set1_ps(*x); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector fma(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
PENTATRON_TARGET PENTATRON_ALWAYS Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
PENTATRON_TARGET PENTATRON_ALWAYS Mask mask_of(std::int64_t count) {
  return static_cast<Mask>((1u << count) - 1u);
}
#include "pentatron/tensor/sgemm_kernel.inc"
#undef PENTATRON_TARGET
#undef PENTATRON_TARGET_LAMBDA
}  // namespace avx512

namespace avx2 {
#define PENTATRON_TARGET __attribute__((target("avx2,fma")))
#define PENTATRON_TARGET_LAMBDA __attribute__((target("avx2,fma"), always_inline))
using Vector = __m256;
using Mask = __m256i;
constexpr int kWidth = 8, kVectors = 2, kSums = 12;
constexpr bool kPackAlways = true;  // a panel is one cache line wide: rows far apart share few sets
PENTATRON_TARGET PENTATRON_ALWAYS Vector zero() { return _mm256_setzero_ps(); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector load(const float* x) { return _mm256_loadu_ps(x); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector load_masked(const float* x, Mask mask) {
  return _mm256_maskload_ps(x, mask);
}
PENTATRON_TARGET PENTATRON_ALWAYS void store(float* x, Vector v) { _mm256_storeu_ps(x, v); }
PENTATRON_TARGET PENTATRON_ALWAYS void store_masked(float* x, Vector v, Mask mask) {
  _mm256_maskstore_ps(x, mask, v);
}
PENTATRON_TARGET PENTATRON_ALWAYS Vector broadcast(const float* x) {
  return _mm256_broadcast_ss(x);
}
PENTATRON_TARGET PENTATRON_ALWAYS Vector fma(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
PENTATRON_TARGET PENTATRON_ALWAYS Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
PENTATRON_TARGET PENTATRON_ALWAYS Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
PENTATRON_TARGET PENTATRON_ALWAYS Mask mask_of(std::int64_t count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
}
#include "pentatron/tensor/sgemm_kernel.inc"
#undef PENTATRON_TARGET
#undef PENTATRON_TARGET_LAMBDA
}  // namespace avx2

bool is_amd() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 && ebx == signature_AMD_ebx &&
         ecx == signature_AMD_ecx && edx == signature_AMD_edx;
}

#endif  // PENTATRON_OWN_SGEMM

}  // namespace

bool prefers_own_sgemm(std::int64_t m, std::int64_t n, std::int64_t k) {
#if PENTATRON_OWN_SGEMM
  static const bool kAmd = is_amd();
  if (kAmd) return vector_set() != VectorSet::kNone;
  if (vector_set() != VectorSet::kAvx512) return false;
  // Divisions, so that no size overflows.
  return k <= kMaxDepth && m <= kMaxMultiplications &&
         n <= kMaxMultiplications / std::max<std::int64_t>(m, 1) &&
         k <= kMaxMultiplications / std::max<std::int64_t>(m * n, 1);
#else
  return false;
#endif
}

void own_sgemm(const Sgemm& p, VectorSet set) {
  PENTATRON_CHECK(set != VectorSet::kNone && set <= vector_set(), kInternal,
                  "own_sgemm: this processor lacks the vector instructions");
#if PENTATRON_OWN_SGEMM
  const auto run = set == VectorSet::kAvx512 ? avx512::run : avx2::run;
  if (runs_alone() || p.m == 0 || p.n == 0) return run(p);
  // Parts of the longer side of c, in whole tiles of either set.
  const bool by_rows = p.m >= p.n;
  const std::int64_t tile = by_rows ? 12 : 64, length = by_rows ? p.m : p.n;
  const std::int64_t tiles = (length + tile - 1) / tile;
  const std::int64_t a_row = p.trans_a == Transpose::kYes ? 1 : p.lda;
  const std::int64_t b_column = p.trans_b == Transpose::kYes ? p.ldb : 1;
  const std::int64_t work_of_tile = std::max<std::int64_t>(tile * std::min(p.m, p.n) * p.k, 1);
  parallel_for(0, tiles, kGrain / work_of_tile, [&](std::int64_t from, std::int64_t to) {
    const std::int64_t begin = from * tile, size = std::min(length, to * tile) - begin;
    Sgemm part = p;
    if (by_rows) {
      part.m = size;
      part.a += begin * a_row;
      part.c += begin * p.ldc;
    } else {
      part.n = size;
      part.b += begin * b_column;
      part.c += begin;
      if (part.bias != nullptr) part.bias += begin;
    }
    run(part);
  });
#endif
}

}  // namespace pentatron::tensor

// SPDX-License-Identifier: Apache-2.0
// Products of fp32 matrices on one thread: ours (tensor/sgemm) against MKL's sgemm,
// interleaved, best of many.
//   bench_products [--rounds N]
// Shapes: the products of one training step of a model of width 64 (256 tokens) and of its
// attention, some of width 768, and the head of GPT-2.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/sgemm.h"

extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* lda,
                       const float* b, const int* ldb, const float* beta, float* c, const int* ldc);

namespace {

using pentatron::Tensor;
using pentatron::tensor::Sgemm;
using pentatron::tensor::Transpose;
using pentatron::tensor::VectorSet;

struct Shape {
  const char* name;
  bool trans_a, trans_b;
  int m, n, k;
};
constexpr Shape kShapes[] = {
    {"qkv", false, true, 256, 192, 64},
    {"qkv, input gradient", false, false, 256, 64, 192},
    {"qkv, weight gradient", true, false, 192, 64, 256},
    {"proj", false, true, 256, 64, 64},
    {"proj, weight gradient", true, false, 64, 64, 256},
    {"fc1", false, true, 256, 256, 64},
    {"fc1, input gradient", false, false, 256, 64, 256},
    {"fc1, weight gradient", true, false, 256, 64, 256},
    {"fc2, weight gradient", true, false, 64, 256, 256},
    {"scores", false, true, 32, 64, 16},
    {"scores times values", false, false, 32, 16, 64},
    {"768", false, true, 256, 768, 768},
    {"768, weight gradient", true, false, 768, 768, 256},
    {"3072", false, true, 256, 3072, 768},
    {"3072, back", false, true, 256, 768, 3072},
    {"3072, input gradient", false, false, 256, 768, 3072},
    {"3072, weight gradient", true, false, 3072, 768, 256},
    {"head of GPT-2", false, true, 256, 50257, 768},
};

void mkl(const Sgemm& p) {
  // Row-major c = a b is column-major c^T = b^T a^T.
  const char ta = p.trans_a == Transpose::kYes ? 'T' : 'N',
             tb = p.trans_b == Transpose::kYes ? 'T' : 'N';
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  const int lda = static_cast<int>(p.lda), ldb = static_cast<int>(p.ldb),
            ldc = static_cast<int>(p.ldc);
  sgemm_(&tb, &ta, &n, &m, &k, &p.alpha, p.b, &ldb, p.a, &lda, &p.beta, p.c, &ldc);
}

Tensor numbers(std::int64_t rows, std::int64_t columns) {
  Tensor x = pentatron::tensor::empty({rows, columns}, pentatron::DType::Float);
  float* data = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = std::sin(0.7f * static_cast<float>(i));
  return x;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 25;
  if (argc == 3 && std::strcmp(argv[1], "--rounds") == 0) rounds = std::atoi(argv[2]);
  if (rounds < 1 || (argc != 1 && argc != 3)) {
    fmt::print(stderr, "usage: bench_products [--rounds N]\n");
    return 2;
  }
  pentatron::tensor::set_num_threads(1);
  const VectorSet widest = pentatron::tensor::vector_set();
  std::vector<std::pair<std::string, VectorSet>> ours;
  if (widest >= VectorSet::kAvx2) ours.emplace_back("AVX2", VectorSet::kAvx2);
  if (widest >= VectorSet::kAvx512) ours.emplace_back("AVX-512", VectorSet::kAvx512);
  fmt::print("{:24s}{:>6s}{:>6s}{:>6s}{:>10s}", "GFLOP/s", "m", "n", "k", "MKL");
  for (const auto& [name, set] : ours) fmt::print("{:>10s}", name);
  fmt::print("{:>12s}\n", "chosen");
  for (const Shape& s : kShapes) {
    const Tensor a = numbers(s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k);
    const Tensor b = numbers(s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n);
    const Tensor c = pentatron::tensor::zeros({s.m, s.n}, pentatron::DType::Float);
    const Sgemm p{.trans_a = s.trans_a ? Transpose::kYes : Transpose::kNo,
                  .trans_b = s.trans_b ? Transpose::kYes : Transpose::kNo,
                  .m = s.m,
                  .n = s.n,
                  .k = s.k,
                  .a = a.data_ptr<float>(),
                  .lda = a.stride(0),
                  .b = b.data_ptr<float>(),
                  .ldb = b.stride(0),
                  .c = c.data_ptr<float>(),
                  .ldc = s.n};
    const double flops = 2.0 * s.m * s.n * s.k;
    const int repeats = std::max(1, static_cast<int>(2e7 / flops));
    std::vector<double> best(ours.size() + 1, 1e9);
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t way = 0; way < best.size(); ++way) {
        const auto once = [&] {
          way == 0 ? mkl(p) : pentatron::tensor::own_sgemm(p, ours[way - 1].second);
        };
        once();
        const pentatron::Timer timer;
        for (int i = 0; i < repeats; ++i) once();
        best[way] = std::min(best[way], timer.seconds() / repeats);
      }
    }
    fmt::print("{:24s}{:6d}{:6d}{:6d}", s.name, s.m, s.n, s.k);
    for (const double seconds : best) fmt::print("{:10.1f}", flops / seconds * 1e-9);
    fmt::print("{:>12s}\n", pentatron::tensor::prefers_own_sgemm(s.m, s.n, s.k) ? "ours" : "MKL");
  }
  return 0;
}

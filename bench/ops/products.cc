// SPDX-License-Identifier: Apache-2.0
// Products of fp32 matrices: ours (tensor/sgemm) against MKL's sgemm and, by --library, against
// those of other libraries, interleaved, best of many.
//   bench_products [--rounds N] [--threads N] [--gpt2] [--library PATH]...
// Shapes: the products of one training step of a model of width 64 (256 tokens) and of its
// attention, some of width 768, and the head of GPT-2. --gpt2: those of a step of GPT-2 124M with
// 256 tokens, and their sum over the step. A library is opened at run time and asked for sgemm_
// (BLIS, OpenBLAS) or dnnl_sgemm (oneDNN).
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
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
  int count = 1;  // in a step
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

constexpr Shape kGpt2[] = {
    {"qkv", false, true, 256, 2304, 768, 12},
    {"qkv, input gradient", false, false, 256, 768, 2304, 12},
    {"qkv, weight gradient", true, false, 2304, 768, 256, 12},
    {"proj", false, true, 256, 768, 768, 12},
    {"proj, input gradient", false, false, 256, 768, 768, 12},
    {"proj, weight gradient", true, false, 768, 768, 256, 12},
    {"fc1", false, true, 256, 3072, 768, 12},
    {"fc1, input gradient", false, false, 256, 768, 3072, 12},
    {"fc1, weight gradient", true, false, 3072, 768, 256, 12},
    {"fc2", false, true, 256, 768, 3072, 12},
    {"fc2, input gradient", false, false, 256, 3072, 768, 12},
    {"fc2, weight gradient", true, false, 768, 3072, 256, 12},
    {"head", false, true, 256, 50304, 768},
    {"head, input gradient", false, false, 256, 768, 50304},
    {"head, weight gradient", true, false, 50304, 768, 256},
};

using Product = std::function<void(const Sgemm&)>;
struct Way {
  std::string name;
  Product run;
};

using BlasSgemm = decltype(&sgemm_);
void blas(BlasSgemm sgemm, const Sgemm& p) {
  // Row-major c = a b is column-major c^T = b^T a^T.
  const char ta = p.trans_a == Transpose::kYes ? 'T' : 'N',
             tb = p.trans_b == Transpose::kYes ? 'T' : 'N';
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  const int lda = static_cast<int>(p.lda), ldb = static_cast<int>(p.ldb),
            ldc = static_cast<int>(p.ldc);
  sgemm(&tb, &ta, &n, &m, &k, &p.alpha, p.b, &ldb, p.a, &lda, &p.beta, p.c, &ldc);
}

Product product_of(void* library) {
  // oneDNN's is row-major.
  using DnnlSgemm =
      int (*)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
              std::int64_t, const float*, std::int64_t, float, float*, std::int64_t);
  if (const auto dnnl = reinterpret_cast<DnnlSgemm>(::dlsym(library, "dnnl_sgemm"))) {
    return [dnnl](const Sgemm& p) {
      const int status =
          dnnl(p.trans_a == Transpose::kYes ? 'T' : 'N', p.trans_b == Transpose::kYes ? 'T' : 'N',
               p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
      PENTATRON_CHECK(status == 0, kInternal, "dnnl_sgemm: status {}", status);
    };
  }
  const auto sgemm = reinterpret_cast<BlasSgemm>(::dlsym(library, "sgemm_"));
  if (sgemm == nullptr) return {};
  return [sgemm](const Sgemm& p) { blas(sgemm, p); };
}

// Empty where the library cannot be opened or has no product.
Way way_of(const std::string& path, int threads) {
  // Deep: libtorch carries symbols of oneDNN too.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr) return {};
  using SetThreads = void (*)(std::int64_t);
  const auto set = reinterpret_cast<SetThreads>(::dlsym(library, "bli_thread_set_num_threads"));
  if (set != nullptr) set(threads);  // BLIS takes one thread unless it is told
  const std::string file = path.substr(path.rfind('/') + 1);
  return {file.substr(0, file.find('.')), product_of(library)};
}

struct Options {
  int rounds = 25, threads = 1;
  bool gpt2 = false;
  std::vector<std::string> libraries;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--gpt2") {
      options.gpt2 = true;
      continue;
    }
    if (++i == argc) return false;
    if (word == "--rounds") {
      options.rounds = std::atoi(argv[i]);
    } else if (word == "--threads") {
      options.threads = std::atoi(argv[i]);
    } else if (word == "--library") {
      options.libraries.emplace_back(argv[i]);
    } else {
      return false;
    }
  }
  return options.rounds >= 1 && options.threads >= 1;
}

Tensor numbers(std::int64_t rows, std::int64_t columns) {
  Tensor x = pentatron::tensor::empty({rows, columns}, pentatron::DType::Float);
  float* data = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = std::sin(0.7f * static_cast<float>(i));
  return x;
}

// Seconds of each way for one product.
std::vector<double> measure(const Shape& s, const std::vector<Way>& ways, int rounds) {
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
  const int repeats = std::max(1, static_cast<int>(2e7 / (2.0 * s.m * s.n * s.k)));
  std::vector<double> best(ways.size(), 1e9);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t way = 0; way < best.size(); ++way) {
      ways[way].run(p);
      const pentatron::Timer timer;
      for (int i = 0; i < repeats; ++i) ways[way].run(p);
      best[way] = std::min(best[way], timer.seconds() / repeats);
    }
  }
  return best;
}

void print_table(std::span<const Shape> shapes, const std::vector<Way>& ways,
                 const Options& options) {
  fmt::print("{:24s}{:>6s}{:>6s}{:>6s}", "GFLOP/s", "m", "n", "k");
  for (const Way& way : ways) fmt::print("{:>10s}", way.name);
  fmt::print("{:>12s}\n", "chosen");
  std::vector<double> step(ways.size(), 0);
  for (const Shape& s : shapes) {
    const std::vector<double> seconds = measure(s, ways, options.rounds);
    fmt::print("{:24s}{:6d}{:6d}{:6d}", s.name, s.m, s.n, s.k);
    for (std::size_t way = 0; way < ways.size(); ++way) {
      fmt::print("{:10.1f}", 2.0 * s.m * s.n * s.k / seconds[way] * 1e-9);
      step[way] += s.count * seconds[way];
    }
    fmt::print("{:>12s}\n", pentatron::tensor::prefers_own_sgemm(s.m, s.n, s.k) ? "ours" : "MKL");
  }
  if (!options.gpt2) return;
  fmt::print("{:42s}", "ms of all products of a step");
  for (const double seconds : step) fmt::print("{:10.0f}", seconds * 1e3);
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(stderr,
               "usage: bench_products [--rounds N] [--threads N] [--gpt2] [--library PATH]...\n");
    return 2;
  }
  pentatron::tensor::set_num_threads(options.threads);
  const VectorSet widest = pentatron::tensor::vector_set();
  std::vector<Way> ways{{"MKL", [](const Sgemm& p) { blas(sgemm_, p); }}};
  const auto add_own = [&](const char* name, VectorSet set) {
    if (widest < set) return;
    ways.push_back({name, [set](const Sgemm& p) { pentatron::tensor::own_sgemm(p, set); }});
  };
  add_own("AVX2", VectorSet::kAvx2);
  add_own("AVX-512", VectorSet::kAvx512);
  for (const std::string& path : options.libraries) {
    Way way = way_of(path, options.threads);
    if (!way.run) {
      fmt::print(stderr, "{}: not to be opened, or without sgemm_ and dnnl_sgemm\n", path);
      return 2;
    }
    ways.push_back(std::move(way));
  }
  if (options.gpt2) {
    print_table(kGpt2, ways, options);
  } else {
    print_table(kShapes, ways, options);
  }
  return 0;
}

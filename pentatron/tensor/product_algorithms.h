// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "pentatron/tensor/algorithm_file.h"
#include "pentatron/tensor/tensor.h"

// Which algorithm cuBLASLt takes for a product. CUDA library only.
namespace pentatron::tensor {

// One call of cublasLtMatmul but for its algorithm and workspace; D is C. Nothing is owned.
struct LibraryProduct {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, out_layout = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  bool accumulate = false;  // beta is 1
  Device device = kCpu;
  cudaStream_t stream = nullptr;
};

// Workspace that every product may take.
constexpr std::int64_t kProductWorkspaceBytes = std::int64_t{32} << 20;

// Starts the product on its stream; nothing waits. Another status than success: nothing was
// started.
[[nodiscard]] cublasStatus_t start_product(const LibraryProduct& in,
                                           const cublasLtMatmulAlgo_t& algorithm);

// Chooses once for each key. In deterministic runs (set_up_process) the library's own first choice,
// a pure function of key, GPU and library; else the fastest of its first choices, measured on the
// product's own operands where they are first multiplied, or read from the user's cache folder,
// where a choice is kept. A product that is being recorded or accumulates cannot be run twice: its
// key has the first choice. kUnsupported where the library has nothing for it.
class ProductAlgorithms final {
 public:
  // `key`: all that distinguishes products but their GPU.
  [[nodiscard]] cublasLtMatmulAlgo_t of(const LibraryProduct& in, const ProductKey& key);

 private:
  [[nodiscard]] cublasLtMatmulAlgo_t fastest(const LibraryProduct& in, const ProductKey& key);
  [[nodiscard]] AlgorithmFile& file_of(Device device);

  std::mutex mutex_;
  std::map<ProductKey, cublasLtMatmulAlgo_t> known_;  // the key, then the GPU's number
  std::map<std::string, AlgorithmFile> files_;        // by the GPU's name
  int searches_ = 0;
};

}  // namespace pentatron::tensor

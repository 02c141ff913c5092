// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::nn {

// Keys and values of one sequence on this rank, a pair per local layer (heads as that has them; 0
// where it has none, and then it appends nothing), grown in blocks up to
// max_tokens. A layer or shape that the cache has not: kInternal.
class KvCache final {
 public:
  KvCache(std::int64_t num_layers, std::int64_t max_tokens, std::int64_t num_kv_heads,
          std::int64_t head_dim, DType dtype, Device device = kCpu);
  // Channels of a head of keys and of one of values.
  struct HeadDims {
    std::int64_t keys = 0;
    std::int64_t values = 0;
  };
  KvCache(const std::vector<std::int64_t>& num_kv_heads_of_layers, std::int64_t max_tokens,
          const HeadDims& head_dims, DType dtype, Device device = kCpu);
  // Appends [n, g, d] to a layer and returns views [s, g, d] of all keys and values so far, good
  // until the next append. More than max_tokens: kConfig error.
  struct View {
    Tensor k_sgd;
    Tensor v_sgd;
  };
  [[nodiscard]] View append(std::int64_t layer, const Tensor& k_tgd, const Tensor& v_tgd);
  // Tokens so far.
  [[nodiscard]] std::int64_t length(std::int64_t layer) const {
    return lengths_.at(static_cast<std::size_t>(layer));
  }
  void clear();

 private:
  std::int64_t max_tokens_;
  std::vector<Tensor> keys_;
  std::vector<Tensor> values_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace pentatron::nn

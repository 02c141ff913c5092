// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/kv_cache.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::nn {
namespace {

// Tokens by which a layer's storage grows at least; doubling above it keeps appending linear.
constexpr std::int64_t kBlockTokens = 64;

// `storage` with room for `needed` tokens, the first `length` kept.
Tensor grown(const Tensor& storage, std::int64_t length, std::int64_t needed,
             std::int64_t max_tokens) {
  if (storage.size(0) >= needed) return storage;
  const std::int64_t wanted = std::max({needed, 2 * storage.size(0), kBlockTokens});
  Tensor larger = tensor::empty({std::min(wanted, max_tokens), storage.size(1), storage.size(2)},
                                storage.scalar_type(), storage.device());
  larger.narrow(0, 0, length).copy_(storage.narrow(0, 0, length));
  return larger;
}

std::size_t checked_layers(std::int64_t num_layers, std::int64_t num_kv_heads) {
  PENTATRON_CHECK(num_layers >= 0 && num_kv_heads >= 1, kInternal,
                  "a cache of {} layers with {} heads cannot be made", num_layers, num_kv_heads);
  return static_cast<std::size_t>(num_layers);
}

}  // namespace

KvCache::KvCache(std::int64_t num_layers, std::int64_t max_tokens, std::int64_t num_kv_heads,
                 std::int64_t head_dim, DType dtype, Device device)
    : KvCache(std::vector<std::int64_t>(checked_layers(num_layers, num_kv_heads), num_kv_heads),
              max_tokens, HeadDims{head_dim, head_dim}, dtype, device) {}

KvCache::KvCache(const std::vector<std::int64_t>& num_kv_heads_of_layers, std::int64_t max_tokens,
                 const HeadDims& head_dims, DType dtype, Device device)
    : max_tokens_(max_tokens) {
  for (const std::int64_t heads : num_kv_heads_of_layers) {
    PENTATRON_CHECK(max_tokens >= 1 && heads >= 0 && head_dims.keys >= 1 && head_dims.values >= 1,
                    kInternal, "a cache of {} tokens, {} heads of size {} and {} cannot be made",
                    max_tokens, heads, head_dims.keys, head_dims.values);
    keys_.push_back(tensor::empty({0, heads, head_dims.keys}, dtype, device));
    values_.push_back(tensor::empty({0, heads, head_dims.values}, dtype, device));
    lengths_.push_back(0);
  }
}

KvCache::View KvCache::append(std::int64_t layer, const Tensor& k_tgd, const Tensor& v_tgd) {
  PENTATRON_CHECK(layer >= 0 && layer < static_cast<std::int64_t>(keys_.size()), kInternal,
                  "the cache has {} layers, layer {} was asked for", keys_.size(), layer);
  const auto index = static_cast<std::size_t>(layer);
  Tensor& keys = keys_[index];
  Tensor& values = values_[index];
  for (const auto& [held, added] : {std::pair{&keys, &k_tgd}, std::pair{&values, &v_tgd}}) {
    PENTATRON_CHECK(added->dim() == 3 && added->size(0) == k_tgd.size(0) &&
                        added->size(1) == held->size(1) && added->size(2) == held->size(2),
                    kInternal, "the cache of layer {} holds {}, not {}", layer,
                    tensor::describe(*held), tensor::describe(*added));
  }
  const std::int64_t length = lengths_[index];
  const std::int64_t total = length + k_tgd.size(0);
  PENTATRON_CHECK(total <= max_tokens_, kConfig,
                  "the key-value cache holds at most {} tokens, {} are needed: generate fewer "
                  "tokens, shorten the prompt or raise --max-position-embeddings",
                  max_tokens_, total);
  keys = grown(keys, length, total, max_tokens_);
  values = grown(values, length, total, max_tokens_);
  keys.narrow(0, length, k_tgd.size(0)).copy_(k_tgd);
  values.narrow(0, length, v_tgd.size(0)).copy_(v_tgd);
  lengths_[index] = total;
  return {keys.narrow(0, 0, total), values.narrow(0, 0, total)};
}

void KvCache::clear() { std::fill(lengths_.begin(), lengths_.end(), 0); }

}  // namespace pentatron::nn

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/context_attention.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/parallel_layers/context_rows.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

namespace pentatron::parallel_layers {

void check_share(const Tensor& q_tnd, const Tensor& k_tgd, const SequenceLayout& rows,
                 bool causal) {
  PENTATRON_CHECK(rows.cut() != nullptr && causal, kInternal,
                  "context-parallel attention of a sequence that was {}cut, {}causal",
                  rows.cut() == nullptr ? "not " : "", causal ? "" : "not ");
  PENTATRON_CHECK(q_tnd.size(0) == rows.num_rows() && k_tgd.size(0) == rows.num_rows(), kInternal,
                  "context-parallel attention of {} queries and {} keys on a rank with {} rows",
                  q_tnd.size(0), k_tgd.size(0), rows.num_rows());
}

Tensor half_of(const Tensor& x_t, std::size_t half) {
  const std::int64_t rows = x_t.size(0) / 2;
  return tensor::narrowed(x_t, 0, static_cast<std::int64_t>(half) * rows, rows);
}

Tensor pack(const Tensor& k_tgd, const Tensor& v_tgd) { return tensor::cat({k_tgd, v_tgd}, 1); }

KeysAndValues unpack(const Tensor& kv) {
  const std::int64_t heads = kv.size(1) / 2;
  return {tensor::narrowed(kv, 1, 0, heads), tensor::narrowed(kv, 1, heads, heads)};
}

namespace {

// Zeros behind each head's own channels.
Tensor filled(const Tensor& x_tnd, std::int64_t channels) {
  const std::int64_t missing = channels - x_tnd.size(2);
  if (missing == 0) return x_tnd;
  return tensor::cat({x_tnd, tensor::zeros({x_tnd.size(0), x_tnd.size(1), missing},
                                           x_tnd.scalar_type(), x_tnd.device())},
                     2);
}

}  // namespace

Tensor context_attention(config::ContextComm type, const Tensor& q_tnd, const Tensor& k_tgd,
                         const Tensor& v_tgd, const SequenceLayout& rows,
                         const ops::AttentionOptions& options, const ops::Scope& scope) {
  using config::ContextComm;
  // Keys and values travel as one tensor: zero channels change neither scores nor outputs.
  if (const std::int64_t own = v_tgd.size(2); own != q_tnd.size(2)) {
    const std::int64_t channels = std::max(q_tnd.size(2), own);
    return context_attention(type, filled(q_tnd, channels), filled(k_tgd, channels),
                             filled(v_tgd, channels), rows, options, scope)
        .narrow(2, 0, own);
  }
  switch (type) {
    case ContextComm::kP2p:
      return ring_attention(q_tnd, k_tgd, v_tgd, rows, options, scope);
    case ContextComm::kAllGather:
      return gathered_attention(q_tnd, k_tgd, v_tgd, rows, options, scope);
    case ContextComm::kA2a:
      return exchanged_attention(q_tnd, k_tgd, v_tgd, rows, options, scope);
    case ContextComm::kA2aP2p:
      return exchanged_ring_attention(q_tnd, k_tgd, v_tgd, rows, options, scope);
  }
  PENTATRON_THROW(kInternal, "no such context-parallel attention: {}", static_cast<int>(type));
}

}  // namespace pentatron::parallel_layers

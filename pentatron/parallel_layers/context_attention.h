// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/context_comm.h"
#include "pentatron/ops/attention.h"
#include "pentatron/tensor/sequence_cut.h"

// Causal self-attention of sequences that are cut over context-parallel ranks: each rank has the
// queries, keys and values of its rows (tensor/sequence_cut.h) and gets the outputs of these rows,
// equal to those of one rank that has all. Collective over the ranks of the cut, in forward and in
// backward. q [rows, n, d], k and v [rows, g, d] of this rank's rows in the layout's order; out
// [rows, n, d]. Rows that are no share, or attention that is not causal: kInternal; else the errors
// of ops::attention. Between forward and backward a rank keeps what is its own.
namespace pentatron::parallel_layers {

// In one of the ways below.
[[nodiscard]] Tensor context_attention(config::ContextComm type, const Tensor& q_tnd,
                                       const Tensor& k_tgd, const Tensor& v_tgd,
                                       const SequenceLayout& rows,
                                       const ops::AttentionOptions& options,
                                       const ops::Scope& scope = {});

// Keys and values of all ranks are gathered, in backward again, and their gradients scattered as
// sums. Memory of all keys for a moment; one large message each way.
[[nodiscard]] Tensor gathered_attention(const Tensor& q_tnd, const Tensor& k_tgd,
                                        const Tensor& v_tgd, const SequenceLayout& rows,
                                        const ops::AttentionOptions& options,
                                        const ops::Scope& scope = {});

// A rank's keys and values go round a ring (H. Liu et al., "Ring Attention with Blockwise
// Transformers", 2023): beside its own a rank holds those that it attends to and those that arrive
// meanwhile. Outputs of the parts are put together by their log-sum-exps; in backward the gradients
// of keys travel with the keys.
[[nodiscard]] Tensor ring_attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                                    const SequenceLayout& rows,
                                    const ops::AttentionOptions& options,
                                    const ops::Scope& scope = {});

// Ranks exchange rows for heads and back (S. A. Jacobs et al., "DeepSpeed Ulysses", 2023): each
// attends with all rows to its n / size heads. With a cut of two levels only the inner groups do
// so, and the outer groups form rings. Heads, or kv heads, that do not divide by the ranks:
// kConfig.
[[nodiscard]] Tensor exchanged_attention(const Tensor& q_tnd, const Tensor& k_tgd,
                                         const Tensor& v_tgd, const SequenceLayout& rows,
                                         const ops::AttentionOptions& options,
                                         const ops::Scope& scope = {});
[[nodiscard]] Tensor exchanged_ring_attention(const Tensor& q_tnd, const Tensor& k_tgd,
                                              const Tensor& v_tgd, const SequenceLayout& rows,
                                              const ops::AttentionOptions& options,
                                              const ops::Scope& scope = {});

}  // namespace pentatron::parallel_layers

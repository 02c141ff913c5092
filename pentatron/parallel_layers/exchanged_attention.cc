// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/context_attention.h"
#include "pentatron/parallel_layers/context_rows.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

namespace pentatron::parallel_layers {
namespace {

using Heads = std::vector<std::int64_t>;

// Ranks of a group exchange rows for heads: tensors [this rank's rows, n, d] with all heads become
// [the group's rows, n / size, d] with this rank's share of each tensor's heads, and back.
class HeadExchange final {
 public:
  // `rows` outlives it. `heads`: of the tensors that go together.
  HeadExchange(const GatheredRows& rows, Heads heads) : rows_(rows), heads_(std::move(heads)) {}

  [[nodiscard]] std::vector<Tensor> to_heads(const std::vector<Tensor>& xs_tnd) const {
    std::vector<Tensor> parts;  // for each rank its heads of every tensor
    for (std::int64_t to = 0; to < size(); ++to) {
      std::vector<Tensor> shares;
      for (std::size_t i = 0; i < xs_tnd.size(); ++i) {
        shares.push_back(tensor::narrowed(xs_tnd[i], 1, to * share(i), share(i)));
      }
      parts.push_back(tensor::cat(shares, 1));
    }
    const Tensor all = exchange(tensor::cat(parts, 0)).index_select(0, rows_.from_ranks);
    std::vector<Tensor> out;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      out.push_back(tensor::narrowed(all, 1, begin, share(i)));
      begin += share(i);
    }
    return out;
  }

  [[nodiscard]] std::vector<Tensor> to_rows(const std::vector<Tensor>& xs_snd) const {
    const Tensor all = exchange(tensor::cat(xs_snd, 1).index_select(0, rows_.to_ranks));
    const std::int64_t rows = all.size(0) / size(), d = all.size(2);
    const Tensor of_ranks =
        all.view({size(), rows, all.size(1), d});  // whose heads, whose rows: ours
    std::vector<Tensor> out;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      out.push_back(
          of_ranks.narrow(2, begin, share(i)).permute({1, 0, 2, 3}).reshape({rows, heads_[i], d}));
      begin += share(i);
    }
    return out;
  }

 private:
  [[nodiscard]] std::int64_t size() const { return rows_.group->size(); }
  [[nodiscard]] std::int64_t share(std::size_t tensor) const { return heads_[tensor] / size(); }
  // Each rank's equal part of the rows goes to it.
  [[nodiscard]] Tensor exchange(const Tensor& in) const {
    const Tensor out = tensor::empty(in.sizes(), in.scalar_type(), in.device());
    const std::vector<std::int64_t> splits(static_cast<std::size_t>(size()), in.size(0) / size());
    rows_.group->all_to_all(out, in, splits, splits)->wait();
    return out;
  }

  const GatheredRows& rows_;
  Heads heads_;
};

enum class Direction { kToHeads, kToRows };

std::vector<Tensor> exchanged(const HeadExchange& exchange, Direction direction,
                              const std::vector<Tensor>& xs) {
  return direction == Direction::kToHeads ? exchange.to_heads(xs) : exchange.to_rows(xs);
}

class HeadExchangeBackward final : public ops::Backward {
 public:
  // `keeps`: what the exchange's rows lie in.
  HeadExchangeBackward(SequenceCutPtr keeps, HeadExchange exchange, Direction back)
      : keeps_(std::move(keeps)), exchange_(std::move(exchange)), back_(back) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    for (const Tensor& grad : output_grads) {
      PENTATRON_CHECK(grad.defined(), kInternal,
                      "{}: no gradient came, the other ranks would wait for this one", name());
    }
    return exchanged(exchange_, back_, output_grads);
  }
  void release() override { keeps_.reset(); }
  std::string_view name() const override { return "HeadExchange"; }

 private:
  SequenceCutPtr keeps_;
  HeadExchange exchange_;
  Direction back_;
};

std::vector<Tensor> exchange(const SequenceCutPtr& cut, const GatheredRows& rows,
                             Direction direction, const Heads& heads,
                             const std::vector<Tensor>& xs) {
  const HeadExchange exchange(rows, heads);
  std::vector<Tensor> out;
  {
    const tensor::NoGrad no_grad;
    out = exchanged(exchange, direction, xs);
  }
  const Direction back =
      direction == Direction::kToHeads ? Direction::kToRows : Direction::kToHeads;
  ops::attach(out, xs, std::make_unique<HeadExchangeBackward>(cut, exchange, back));
  return out;
}

using Attend = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const SequenceLayout&,
                          const ops::AttentionOptions&, const ops::Scope&);

// `attend` with what the group's ranks hold together, this rank's heads of it.
Tensor attend_by_heads(const SequenceCutPtr& cut, const GatheredRows& together, Attend attend,
                       const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                       ops::AttentionOptions options, const ops::Scope& scope) {
  const std::int64_t size = together.group->size(), heads = q_tnd.size(1);
  const std::int64_t kv_heads = k_tgd.size(1);
  PENTATRON_CHECK(heads % size == 0 && kv_heads % size == 0, kConfig,
                  "{} query heads and {} key heads of a rank cannot be shared by {} ranks evenly: "
                  "use --cp-comm-type p2p or all_gather, or change --context-parallel-size",
                  heads, kv_heads, size);
  const std::vector<Tensor> qkv = exchange(cut, together, Direction::kToHeads,
                                           {heads, kv_heads, kv_heads}, {q_tnd, k_tgd, v_tgd});
  const std::int64_t own = heads / size, first = together.group->rank() * own;
  options.dropout.head_begin += first;
  if (options.alibi_n.defined()) options.alibi_n = options.alibi_n.narrow(0, first, own);
  if (options.sink_n.defined()) options.sink_n = options.sink_n.narrow(0, first, own);
  if (options.bias_nd.defined()) options.bias_nd = options.bias_nd.narrow(0, first, own);
  Tensor& max_logit = options.max_logit;
  if (max_logit.defined() && max_logit.dim() == 1) max_logit = max_logit.narrow(0, first, own);
  const Tensor out = attend(qkv[0], qkv[1], qkv[2], together.layout, options, scope);
  return exchange(cut, together, Direction::kToRows, {heads}, {out}).at(0);
}

}  // namespace

Tensor exchanged_attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                           const SequenceLayout& rows, const ops::AttentionOptions& options,
                           const ops::Scope& scope) {
  check_share(q_tnd, k_tgd, rows, options.causal);
  const SequenceCutPtr& cut = rows.cut();
  return attend_by_heads(cut, cut->whole, &ops::attention, q_tnd, k_tgd, v_tgd, options, scope);
}

Tensor exchanged_ring_attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                                const SequenceLayout& rows, const ops::AttentionOptions& options,
                                const ops::Scope& scope) {
  check_share(q_tnd, k_tgd, rows, options.causal);
  const SequenceCutPtr& cut = rows.cut();
  if (cut->inner == nullptr) {
    return ring_attention(q_tnd, k_tgd, v_tgd, rows, options, scope);
  }
  return attend_by_heads(cut, *cut->inner, &ring_attention, q_tnd, k_tgd, v_tgd, options, scope);
}

}  // namespace pentatron::parallel_layers

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"
#include "pentatron/ops/attention_window.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/rows.h"
#include "pentatron/tensor/blas.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

using tensor::Transpose;

// Rows of queries and keys at a time: scores of one block stay in the second-level cache.
constexpr std::int64_t kQueryBlock = 128;  // at most
constexpr std::int64_t kKeyBlock = 256;

// One head's matrix inside [tokens, heads, d]: rows stand `stride` apart.
template <typename C>
struct HeadRows {
  C* data;
  std::int64_t stride;
  C* row(std::int64_t t) const { return data + t * stride; }
};
// The stride of a dimension of one row may be anything, which BLAS does not take.
std::int64_t row_stride(const Tensor& x_tnd) {
  return x_tnd.size(0) > 1 ? x_tnd.stride(0) : x_tnd.size(2);
}
template <typename C>
HeadRows<const C> read_head(const Tensor& x_tnd, std::int64_t head) {
  return {x_tnd.const_data_ptr<C>() + head * x_tnd.stride(1), row_stride(x_tnd)};
}
template <typename C>
HeadRows<C> write_head(const Tensor& x_tnd, std::int64_t head) {
  return {x_tnd.data_ptr<C>() + head * x_tnd.stride(1), row_stride(x_tnd)};
}

// Rows of scores have room for whole vectors, as the row kernels want it.
constexpr std::int64_t kVector = 16;
std::int64_t whole_vectors(std::int64_t n) { return (n + kVector - 1) / kVector * kVector; }

// How far rows of scores stand apart: short sequences stay dense in the cache.
std::int64_t score_stride(const AttentionPlan& plan) {
  return std::min(kKeyBlock, whole_vectors(std::max<std::int64_t>(plan.rows->max_k_len, 1)));
}
// How many queries at a time. Under a causal mask a block computes scores that none of its queries
// sees: short sequences are cut in two for that.
std::int64_t query_block(const AttentionPlan& plan) {
  const std::int64_t longest = std::max<std::int64_t>(plan.rows->max_q_len, 1);
  const std::int64_t wanted = plan.options.causal ? whole_vectors((longest + 1) / 2) : longest;
  return std::min(kQueryBlock, wanted);
}

// A block of queries against a block of keys, in rows of the segment.
struct Block {
  std::int64_t q_begin, q_len;  // segment-relative
  std::int64_t k_begin, k_len;
  bool first;  // of the blocks of keys that these queries see
};

// Keys [begin, end) of the block that the query `row` (of the block) sees.
KeyRange visible_keys(const AttentionSegment& s, const Block& b, std::int64_t row,
                      const AttentionOptions& options) {
  const KeyRange seen = seen_keys(s, b.q_begin + row, 1, options);
  return {std::clamp<std::int64_t>(seen.begin - b.k_begin, 0, b.k_len),
          std::clamp<std::int64_t>(seen.end - b.k_begin, 0, b.k_len)};
}

// Calls body(block) for the blocks of keys that the queries [q_begin, q_begin + q_len) see.
template <typename F>
void over_key_blocks(const KeyRange& seen, std::int64_t q_begin, std::int64_t q_len, F body) {
  for (std::int64_t at = seen.begin; at < seen.end; at += kKeyBlock) {
    body(Block{q_begin, q_len, at, std::min(kKeyBlock, seen.end - at), at == seen.begin});
  }
}

// Scores of a row that its query does not see, in front of those that it sees.
template <typename C>
void hide_front(const KeyRange& visible, C* scores) {
  std::fill_n(scores, visible.begin, -std::numeric_limits<C>::infinity());
}

// AttentionOptions::alibi_in_bf16
double bf16_bias(c10::BFloat16 slope, std::int64_t place) {
  return c10::BFloat16(static_cast<float>(slope) * c10::BFloat16(static_cast<float>(place)));
}

// Takes slope * |distance| off the first n scores of a row (AttentionOptions::alibi_n).
template <typename C>
void add_alibi(const AttentionPlan& plan, const AttentionSegment& s, const Block& b,
               std::int64_t row, std::int64_t head, C* scores, std::int64_t n) {
  const Tensor& alibi_n = plan.options.alibi_n;
  if (!alibi_n.defined()) return;
  const double slope = alibi_n.const_data_ptr<double>()[head];
  const double scale = plan.options.alibi_scale;
  const std::int64_t query = b.q_begin + row + (s.k_len - s.q_len) + s.apart;
  if (!plan.options.alibi_in_bf16) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto distance = static_cast<double>(std::abs(b.k_begin + i - query));
      scores[i] -= static_cast<C>(slope * distance * scale);
    }
    return;
  }
  const c10::BFloat16 narrow(static_cast<float>(slope));
  const double own = bf16_bias(narrow, s.before + query);
  for (std::int64_t i = 0; i < n; ++i) {
    const double bias = bf16_bias(narrow, s.before + b.k_begin + i);
    scores[i] -= static_cast<C>(std::abs(own - bias) * scale);
  }
}

// Calls body(i, column) for the first n keys of a row of scores, with their columns of
// AttentionOptions::bias_nd.
template <typename F>
void over_biases(const AttentionPlan& plan, const AttentionSegment& s, const Block& b,
                 std::int64_t row, std::int64_t n, F body) {
  const std::int64_t furthest = plan.options.bias_nd.size(1) / 2;
  const std::int64_t query = b.q_begin + row + (s.k_len - s.q_len) + s.apart;
  for (std::int64_t i = 0; i < n; ++i) {
    body(i, furthest + std::clamp(b.k_begin + i - query, -furthest, furthest));
  }
}

template <typename C>
void add_bias(const AttentionPlan& plan, const AttentionSegment& s, const Block& b,
              std::int64_t row, std::int64_t head, C* scores, std::int64_t n) {
  const Tensor& bias_nd = plan.options.bias_nd;
  if (!bias_nd.defined()) return;
  const C* bias = bias_nd.const_data_ptr<C>() + head * bias_nd.stride(0);
  const std::int64_t stride = bias_nd.stride(1);
  over_biases(plan, s, b, row, n,
              [&](std::int64_t i, std::int64_t column) { scores[i] += bias[column * stride]; });
}

// Factors 0 or 1/(1-p) of one row of probabilities.
template <typename C>
class DropoutRow final {
 public:
  explicit DropoutRow(const AttentionPlan& plan)
      : q_rows_(plan.rows->q_rows.get()),
        k_rows_(plan.rows->k_rows.get()),
        head_begin_(plan.options.dropout.head_begin),
        active_(plan.options.dropout.p > 0.0),
        threshold_(tensor::dropout_threshold(plan.options.dropout.p)),
        factor_(static_cast<C>(1.0 / (1.0 - plan.options.dropout.p))),
        key_{{static_cast<std::uint32_t>(plan.options.dropout.site.key),
              static_cast<std::uint32_t>(plan.options.dropout.site.key >> 32)}},
        factors_(active_ ? kKeyBlock : 0) {}

  [[nodiscard]] bool active() const { return active_; }
  // For the query at row `q` of the micro-batch, local head `head` and keys at rows [k, k + n).
  const C* operator()(std::int64_t q, std::int64_t head, std::int64_t k, std::int64_t n) {
    const std::int64_t sample = q_rows_->sample_ids[q];
    const auto global_head = static_cast<std::uint32_t>(head_begin_ + head);
    std::int64_t group = -1;
    PhiloxDraws draws{};
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t key_index = k_rows_->token_index[k + i];
      if (key_index / 8 != group) {
        group = key_index / 8;
        const PhiloxWords counter = {
            {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(q_rows_->token_index[q]),
             static_cast<std::uint32_t>(sample),
             (static_cast<std::uint32_t>(sample >> 32) << 20) ^ global_head}};
        draws = philox_draws(philox4x32_10(counter, key_));
      }
      factors_[i] = draws.v[key_index % 8] >= threshold_ ? factor_ : C(0);
    }
    return factors_.data();
  }

 private:
  const SequenceRows* q_rows_;
  const SequenceRows* k_rows_;
  std::int64_t head_begin_;
  bool active_;
  std::uint32_t threshold_;
  C factor_;
  PhiloxKey key_;
  std::vector<C> factors_;
};

// One (segment, head, block of queries) at a time; the scratch belongs to a worker.
template <typename C>
class ForwardWorker final {
 public:
  // Channels of queries and keys, and of values.
  ForwardWorker(const AttentionPlan& plan, std::int64_t d, std::int64_t v_d)
      : plan_(plan),
        d_(d),
        v_d_(v_d),
        drop_(plan),
        query_block_(query_block(plan)),
        key_stride_(score_stride(plan)),
        scores_(new C[query_block_ * key_stride_]),
        sums_(query_block_ * v_d),
        maximum_(query_block_),
        normalizer_(query_block_) {}

  // Returns the largest logit of what it ran.
  C run(const AttentionSegment& s, std::int64_t head, std::int64_t q_begin, HeadRows<const C> q,
        HeadRows<const C> k, HeadRows<const C> v, HeadRows<C> out, C* lse) {
    const std::int64_t q_len = std::min(query_block_, s.q_len - q_begin);
    std::fill(maximum_.begin(), maximum_.end(), -std::numeric_limits<C>::infinity());
    std::fill(normalizer_.begin(), normalizer_.end(), C(0));
    const KeyRange seen = seen_keys(s, q_begin, q_len, plan_.options);
    if (seen.begin == seen.end) std::fill(sums_.begin(), sums_.begin() + q_len * v_d_, C(0));
    over_key_blocks(seen, q_begin, q_len, [&](const Block& b) {
      gemm(Transpose::kNo, Transpose::kYes, b.q_len, b.k_len, d_,
           static_cast<C>(plan_.options.scale), q.row(s.q_begin + q_begin), q.stride,
           k.row(s.k_begin + b.k_begin), k.stride, C(0), scores_.get(), key_stride_);
      for (std::int64_t r = 0; r < q_len; ++r) {
        soften(s, b, r, head);
      }
      gemm(Transpose::kNo, Transpose::kNo, b.q_len, v_d_, b.k_len, C(1), scores_.get(), key_stride_,
           v.row(s.k_begin + b.k_begin), v.stride, b.first ? C(0) : C(1), sums_.data(), v_d_);
    });
    for (std::int64_t r = 0; r < q_len; ++r) {
      const std::int64_t t = s.q_begin + q_begin + r;
      // A query that sees no key: its sums are 0, and so is its output.
      const C sum = normalizer_[r];
      rows::scale(sums_.data() + r * v_d_, sum == C(0) ? C(0) : C(1) / sum, v_d_);
      std::copy_n(sums_.data() + r * v_d_, v_d_, out.row(t));
      lse[t] = maximum_[r] + std::log(normalizer_[r]);
    }
    return *std::max_element(maximum_.begin(), maximum_.begin() + q_len);
  }

 private:
  // Scores of row r become exp(score - running maximum); what was summed before is brought to that
  // maximum.
  void soften(const AttentionSegment& s, const Block& b, std::int64_t r, std::int64_t head) {
    C* row = scores_.get() + r * key_stride_;
    const KeyRange visible = visible_keys(s, b, r, plan_.options);
    const std::int64_t n = visible.end;
    if (visible.begin >= n) {
      std::fill_n(row, b.k_len, C(0));
      return;
    }
    if (plan_.options.softcap > 0.0) {
      rows::softcap(row, static_cast<C>(plan_.options.softcap), n);
    }
    add_alibi(plan_, s, b, r, head, row, n);
    add_bias(plan_, s, b, r, head, row, n);
    hide_front(visible, row);
    const auto [highest, sum] = rows::softmax_visible(row, n, b.k_len, maximum_[r]);
    const C correction = b.first ? C(0) : std::exp(maximum_[r] - highest);
    normalizer_[r] = normalizer_[r] * correction + sum;
    if (!b.first && correction != C(1)) rows::scale(sums_.data() + r * v_d_, correction, v_d_);
    maximum_[r] = highest;
    if (drop_.active()) {
      rows::multiply(row, drop_(s.q_begin + b.q_begin + r, head, s.k_begin + b.k_begin, n), n);
    }
  }

  const AttentionPlan& plan_;
  std::int64_t d_, v_d_;
  DropoutRow<C> drop_;
  std::int64_t query_block_;
  std::int64_t key_stride_;
  std::unique_ptr<C[]> scores_;  // written by a product before it is read
  std::vector<C> sums_, maximum_, normalizer_;
};

template <typename C>
void forward_of(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                const Tensor& v_tgd, const Tensor& out_tnd, const Tensor& lse_nt) {
  const std::int64_t heads = q_tnd.size(1);
  const std::int64_t heads_per_kv = heads / k_tgd.size(1);
  struct Task {
    const AttentionSegment* segment;
    std::int64_t head, q_begin;
  };
  const std::int64_t step = query_block(plan);
  std::vector<Task> tasks;
  for (const AttentionSegment& s : plan.rows->segments) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t at = 0; at < s.q_len; at += step) tasks.push_back({&s, head, at});
    }
  }
  const Tensor& max_logit = plan.options.max_logit;
  const bool of_heads = max_logit.defined() && max_logit.dim() == 1;
  std::mutex mutex;
  tensor::parallel_tasks(static_cast<std::int64_t>(tasks.size()), [&](tensor::TaskSource& source) {
    ForwardWorker<C> worker(plan, q_tnd.size(2), v_tgd.size(2));
    std::vector<C> highest(of_heads ? heads : 1, -std::numeric_limits<C>::infinity());
    for (std::int64_t i = 0; source.next(i);) {
      const Task& task = tasks[i];
      const C logit = worker.run(
          *task.segment, task.head, task.q_begin, read_head<C>(q_tnd, task.head),
          read_head<C>(k_tgd, task.head / heads_per_kv),
          read_head<C>(v_tgd, task.head / heads_per_kv), write_head<C>(out_tnd, task.head),
          lse_nt.data_ptr<C>() + task.head * lse_nt.size(1));
      C& so_far = highest[of_heads ? task.head : 0];
      so_far = std::max(so_far, logit);
    }
    if (!max_logit.defined()) return;
    const std::lock_guard lock(mutex);
    auto* largest = max_logit.data_ptr<double>();
    for (std::size_t i = 0; i < highest.size(); ++i) {
      largest[i] = std::max(largest[i], static_cast<double>(highest[i]));
    }
  });
}

template <typename C>
struct BackwardHeads {
  HeadRows<const C> q, k, v, out, dout;
  HeadRows<C> dq, dk, dv;
  const C* lse;
  std::int64_t head;
  bool first_of_kv;  // of the query heads that share dk and dv
  double* dbias;     // of the head; null: there are no biases
};

// One (segment, kv head) at a time: the query heads of a kv head add into the same dk and dv in a
// fixed order.
template <typename C>
class BackwardWorker final {
 public:
  // Channels of queries and keys, and of values.
  BackwardWorker(const AttentionPlan& plan, std::int64_t d, std::int64_t v_d)
      : plan_(plan),
        d_(d),
        v_d_(v_d),
        drop_(plan),
        query_block_(query_block(plan)),
        key_stride_(score_stride(plan)),
        p_(new C[query_block_ * key_stride_]),
        dp_(new C[query_block_ * key_stride_]),
        dropped_(drop_.active() ? new C[query_block_ * key_stride_] : nullptr),
        slopes_(plan.options.softcap > 0.0 ? kKeyBlock : 0),
        delta_(query_block_) {}

  void run(const AttentionSegment& s, const BackwardHeads<C>& h) {
    if (h.first_of_kv && !written_at_once(s)) {
      clear(h.dk, s.k_begin, s.k_len, d_);
      clear(h.dv, s.k_begin, s.k_len, v_d_);
    }
    // The last queries first: they see every key.
    const std::int64_t last = s.q_len > 0 ? (s.q_len - 1) / query_block_ * query_block_ : -1;
    for (std::int64_t q_begin = last; q_begin >= 0; q_begin -= query_block_) {
      const std::int64_t q_len = std::min(query_block_, s.q_len - q_begin);
      for (std::int64_t r = 0; r < q_len && !row_is_here(s); ++r) {
        const std::int64_t t = s.q_begin + q_begin + r;
        delta_[r] = rows::dot(h.dout.row(t), h.out.row(t), v_d_);
      }
      const KeyRange seen = seen_keys(s, q_begin, q_len, plan_.options);
      if (seen.begin == seen.end) clear(h.dq, s.q_begin + q_begin, q_len, d_);
      over_key_blocks(seen, q_begin, q_len, [&](const Block& b) { run_block(s, b, h); });
    }
  }

 private:
  // The first block of such a segment writes dk and dv of all its keys, the others add to them.
  [[nodiscard]] bool written_at_once(const AttentionSegment& s) const {
    return s.q_len > 0 && s.k_len <= kKeyBlock && plan_.options.window < 0;
  }
  // Whether one block of keys is all that a query of the segment gives probability to.
  [[nodiscard]] bool row_is_here(const AttentionSegment& s) const {
    return s.k_len <= kKeyBlock && !plan_.options.partial && !plan_.options.sink_n.defined();
  }
  static void clear(HeadRows<C> x, std::int64_t begin, std::int64_t rows, std::int64_t channels) {
    for (std::int64_t r = begin; r < begin + rows; ++r) std::fill_n(x.row(r), channels, C(0));
  }

  void run_block(const AttentionSegment& s, const Block& b, const BackwardHeads<C>& h) {
    const std::int64_t t = s.q_begin + b.q_begin, u = s.k_begin + b.k_begin;
    const C scale = static_cast<C>(plan_.options.scale);
    gemm(Transpose::kNo, Transpose::kYes, b.q_len, b.k_len, d_, scale, h.q.row(t), h.q.stride,
         h.k.row(u), h.k.stride, C(0), p_.get(), key_stride_);
    gemm(Transpose::kNo, Transpose::kYes, b.q_len, b.k_len, v_d_, C(1), h.dout.row(t),
         h.dout.stride, h.v.row(u), h.v.stride, C(0), dp_.get(), key_stride_);
    for (std::int64_t r = 0; r < b.q_len; ++r) {
      row_gradient(s, b, r, h);
    }
    const C* weights = drop_.active() ? dropped_.get() : p_.get();
    const C adds_q = b.first ? C(0) : C(1);
    const bool first = h.first_of_kv && b.q_begin + b.q_len == s.q_len;
    const C adds_k = first && written_at_once(s) ? C(0) : C(1);
    gemm(Transpose::kYes, Transpose::kNo, b.k_len, v_d_, b.q_len, C(1), weights, key_stride_,
         h.dout.row(t), h.dout.stride, adds_k, h.dv.row(u), h.dv.stride);
    gemm(Transpose::kNo, Transpose::kNo, b.q_len, d_, b.k_len, scale, dp_.get(), key_stride_,
         h.k.row(u), h.k.stride, adds_q, h.dq.row(t), h.dq.stride);
    gemm(Transpose::kYes, Transpose::kNo, b.k_len, d_, b.q_len, scale, dp_.get(), key_stride_,
         h.q.row(t), h.q.stride, adds_k, h.dk.row(u), h.dk.stride);
  }

  // p: scores to probabilities; dp: to the gradient of the scores.
  void row_gradient(const AttentionSegment& s, const Block& b, std::int64_t r,
                    const BackwardHeads<C>& h) {
    C* p = p_.get() + r * key_stride_;
    C* dp = dp_.get() + r * key_stride_;
    const KeyRange visible = visible_keys(s, b, r, plan_.options);
    const std::int64_t n = visible.begin < visible.end ? visible.end : 0;
    const std::int64_t t = s.q_begin + b.q_begin + r;
    const bool capped = plan_.options.softcap > 0.0;
    if (capped) {
      rows::softcap_with_slope(p, static_cast<C>(plan_.options.softcap), slopes_.data(), n);
    }
    add_alibi(plan_, s, b, r, h.head, p, n);
    add_bias(plan_, s, b, r, h.head, p, n);
    if (n > 0) hide_front(visible, p);
    const C* factors = nullptr;
    if (drop_.active()) {
      factors = drop_(t, h.head, s.k_begin + b.k_begin, n);
      rows::multiply(dp, factors, n);
    }
    // Summed over the row itself where it is all here: rounding errors of the output stay out.
    const C* delta = row_is_here(s) ? nullptr : &delta_[r];
    rows::softmax_visible_backward(p, dp, h.lse[t], delta, n, b.k_len);
    if (h.dbias != nullptr) {
      over_biases(plan_, s, b, r, n, [&](std::int64_t i, std::int64_t column) {
        h.dbias[column] += static_cast<double>(dp[i]);
      });
    }
    if (capped) rows::multiply(dp, slopes_.data(), n);
    if (!drop_.active()) return;
    C* dropped = dropped_.get() + r * key_stride_;
    std::copy_n(p, b.k_len, dropped);
    rows::multiply(dropped, factors, n);
  }

  const AttentionPlan& plan_;
  std::int64_t d_, v_d_;
  DropoutRow<C> drop_;
  std::int64_t query_block_;
  std::int64_t key_stride_;
  std::unique_ptr<C[]> p_, dp_, dropped_;  // written by products before they are read
  std::vector<C> slopes_;                  // of the cap, of one row
  std::vector<C> delta_;
};

// How many segments a task of the backward takes.
std::int64_t segments_of_task(std::int64_t segments, bool with_biases) {
  constexpr std::int64_t kMaxRuns = 16;  // of segments, each with sums of its own
  return with_biases ? std::max<std::int64_t>(1, (segments + kMaxRuns - 1) / kMaxRuns) : 1;
}

// Gradients of biases [runs, n, distances].
class BiasSums final {
 public:
  // Of biases like these; undefined: none.
  BiasSums(const Tensor& like_nd, std::int64_t runs) {
    if (!like_nd.defined()) return;
    heads_ = like_nd.size(0);
    distances_ = like_nd.size(1);
    sums_.resize(static_cast<std::size_t>(runs * heads_ * distances_), 0.0);
  }
  [[nodiscard]] double* of(std::int64_t run, std::int64_t head) {
    return sums_.empty() ? nullptr : sums_.data() + (run * heads_ + head) * distances_;
  }
  // Adds the runs, in order, to contiguous fp64 biases.
  void add_to(const Tensor& bias_nd) const {
    if (sums_.empty()) return;
    auto* out = bias_nd.data_ptr<double>();
    const std::size_t of_run = static_cast<std::size_t>(heads_ * distances_);
    for (std::size_t i = 0; i < sums_.size(); ++i) out[i % of_run] += sums_[i];
  }

 private:
  std::int64_t heads_ = 0, distances_ = 0;
  std::vector<double> sums_;
};

template <typename C>
void backward_of(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                 const Tensor& v_tgd, const Tensor& out_tnd, const Tensor& lse_nt,
                 const Tensor& dout_tnd, const Tensor& dq_tnd, const Tensor& dk_tgd,
                 const Tensor& dv_tgd, const Tensor& dbias_nd) {
  const std::int64_t kv_heads = k_tgd.size(1), heads_per_kv = q_tnd.size(1) / kv_heads;
  const auto segments = static_cast<std::int64_t>(plan.rows->segments.size());
  const std::int64_t of_task = segments_of_task(segments, dbias_nd.defined());
  const std::int64_t runs = (segments + of_task - 1) / of_task;
  // Each run of segments sums for itself: the sum does not depend on threads.
  BiasSums sums(dbias_nd, runs);
  tensor::parallel_tasks(runs * kv_heads, [&](tensor::TaskSource& source) {
    BackwardWorker<C> worker(plan, q_tnd.size(2), v_tgd.size(2));
    const auto run_head = [&](std::int64_t segment, std::int64_t head) {
      const std::int64_t kv = head / heads_per_kv;
      worker.run(plan.rows->segments[segment],
                 {.q = read_head<C>(q_tnd, head),
                  .k = read_head<C>(k_tgd, kv),
                  .v = read_head<C>(v_tgd, kv),
                  .out = read_head<C>(out_tnd, head),
                  .dout = read_head<C>(dout_tnd, head),
                  .dq = write_head<C>(dq_tnd, head),
                  .dk = write_head<C>(dk_tgd, kv),
                  .dv = write_head<C>(dv_tgd, kv),
                  .lse = lse_nt.const_data_ptr<C>() + head * lse_nt.size(1),
                  .head = head,
                  .first_of_kv = head % heads_per_kv == 0,
                  .dbias = sums.of(segment / of_task, head)});
    };
    for (std::int64_t task = 0; source.next(task);) {
      const std::int64_t kv = task % kv_heads, first = task / kv_heads * of_task;
      for (std::int64_t s = first; s < std::min(first + of_task, segments); ++s) {
        for (std::int64_t head = kv * heads_per_kv; head < (kv + 1) * heads_per_kv; ++head) {
          run_head(s, head);
        }
      }
    }
  });
  sums.add_to(dbias_nd);
}

}  // namespace

void blocked_attention_forward(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                               const Tensor& v_tgd, const Tensor& out_tnd, const Tensor& lse_nt) {
  if (q_tnd.scalar_type() == DType::Double) {
    forward_of<double>(plan, q_tnd, k_tgd, v_tgd, out_tnd, lse_nt);
  } else {
    forward_of<float>(plan, q_tnd, k_tgd, v_tgd, out_tnd, lse_nt);
  }
}

void blocked_attention_backward(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                                const Tensor& v_tgd, const Tensor& out_tnd, const Tensor& lse_nt,
                                const Tensor& dout_tnd, const Tensor& dq_tnd, const Tensor& dk_tgd,
                                const Tensor& dv_tgd, const Tensor& dbias_nd) {
  if (q_tnd.scalar_type() == DType::Double) {
    backward_of<double>(plan, q_tnd, k_tgd, v_tgd, out_tnd, lse_nt, dout_tnd, dq_tnd, dk_tgd,
                        dv_tgd, dbias_nd);
  } else {
    backward_of<float>(plan, q_tnd, k_tgd, v_tgd, out_tnd, lse_nt, dout_tnd, dq_tnd, dk_tgd, dv_tgd,
                       dbias_nd);
  }
}

}  // namespace pentatron::ops

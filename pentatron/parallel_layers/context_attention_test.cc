// SPDX-License-Identifier: Apache-2.0
// Attention of context-parallel ranks against attention of one that has all rows.
#include "pentatron/parallel_layers/context_attention.h"

#include <gtest/gtest.h>

#include <functional>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/watched_group_test_support.h"
#include "pentatron/tensor/memory.h"

namespace pentatron::parallel_layers {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

constexpr std::int64_t kRows = 48;
constexpr std::int64_t kDim = 4;

using config::ContextComm;

struct Case {
  ContextComm type = ContextComm::kAllGather;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  double dropout = 0.0;
  std::int64_t inner = 1;  // ranks that exchange heads, of two levels
  double scale = 0.7;
  bool alibi = false;
  std::int64_t window = -1;
  double softcap = 0.0;
  bool sink = false;
  bool biases = false;  // by distance, up to seven tokens
  bool alibi_in_bf16 = false;
};
constexpr ContextComm kTypes[] = {ContextComm::kP2p, ContextComm::kAllGather, ContextComm::kA2a};

// Two samples of 24 tokens; documents go over the borders of chunks.
SequenceLayout layout() { return make_batch({{5, 12, 7}, {24}}, 13).text(); }

ops::AttentionOptions options_of(const Case& c) {
  ops::AttentionOptions options{.scale = c.scale};
  if (c.dropout > 0) options.dropout = {.p = c.dropout, .site = make_site(3, "site")};
  if (c.alibi) options.alibi_n = tensor::from_vector(ops::alibi_slopes(c.heads));
  options.alibi_in_bf16 = c.alibi_in_bf16;
  options.window = c.window;
  options.softcap = c.softcap;
  return options;
}

// Output and gradients of the given rows under one gradient.
struct Result {
  Tensor out, dq, dk, dv;
  Tensor dsink;  // of these rows; undefined: none
  Tensor dbias;  // likewise
};
using Attend = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const ops::AttentionOptions& options)>;
Result attend_rows(const Case& c, const Tensor& rows, const Attend& attend) {
  const auto leaf = [&](std::int64_t heads, const char* name) {
    return random_tensor({kRows, heads, kDim}, name).index_select(0, rows).set_requires_grad(true);
  };
  const Tensor q = leaf(c.heads, "q"), k = leaf(c.kv_heads, "k"), v = leaf(c.kv_heads, "v");
  ops::AttentionOptions options = options_of(c);
  if (c.sink) options.sink_n = random_tensor({c.heads}, "sink").set_requires_grad(true);
  if (c.biases) options.bias_nd = random_tensor({c.heads, 15}, "bias").set_requires_grad(true);
  const Tensor out = attend(q, k, v, options);
  ops::run_backward(out, random_tensor({kRows, c.heads, kDim}, "dout").index_select(0, rows));
  return {out.detach(),
          q.grad(),
          k.grad(),
          v.grad(),
          c.sink ? options.sink_n.grad() : Tensor(),
          c.biases ? options.bias_nd.grad() : Tensor()};
}

Result whole(const Case& c) {
  return attend_rows(c, tensor::arange(kRows, DType::Long),
                     [&](const Tensor& q, const Tensor& k, const Tensor& v, const auto& options) {
                       return ops::attention(q, k, v, layout(), options);
                     });
}

// What a test lets a rank get wrong.
struct Lie {
  std::int64_t rank_shift = 0;  // attention of another rank's chunks
  std::int64_t row_shift = 0;   // rows of another rank
  int leave_out = -1;           // number of a collective
};

// Runs `body` on each of `size` context-parallel ranks, in `inner` and outer groups.
void on_ranks(std::int64_t size, std::int64_t inner, const Lie& lie,
              const std::function<void(const ContextPlace&)>& body) {
  const comm::ThreadsOptions world{.world_size = size,
                                   .timeout = std::chrono::milliseconds(30'000)};
  comm::run_threads(world, [&](comm::Backend& threads) {
    GroupWatch watch{.leave_out = [&](int number) { return number == lie.leave_out; }};
    WatchedBackend backend(threads, watch);
    config::ParallelConfig parallel;
    parallel.world_size = parallel.context_parallel_size = size;
    parallel.hierarchical_context_parallel_sizes = {std::to_string(inner),
                                                    std::to_string(size / inner)};
    comm::ParallelContext context(backend, comm::make_grids(parallel));
    body({.group = &context.group("cp"),
          .size = size,
          .rank = context.coordinate("cp"),
          .inner_size = inner,
          .inner_group = &context.group("cp_inner"),
          .outer_group = &context.group("cp_outer")});
    backend.shutdown();
  });
}

// Largest difference of any rank's share from the whole's.
double worst(const Case& c, std::int64_t size, const Lie& lie = {}) {
  const Result all = whole(c);
  std::mutex mutex;
  double off = 0.0;
  Tensor dsink, dbias;
  on_ranks(size, c.inner, lie, [&](const ContextPlace& place) {
    const auto shifted = [&](std::int64_t by) {
      ContextPlace other = place;
      other.rank = (place.rank + by) % size;
      return cut_sequence(layout(), other);
    };
    const Tensor rows = shifted(lie.row_shift).cut()->rows;
    const SequenceLayout share = shifted(lie.rank_shift);
    const Result mine = attend_rows(
        c, rows, [&](const Tensor& q, const Tensor& k, const Tensor& v, const auto& options) {
          return context_attention(c.type, q, k, v, share, options);
        });
    const std::lock_guard lock(mutex);
    if (c.biases) dbias = dbias.defined() ? dbias.add(mine.dbias) : mine.dbias;
    if (c.sink) dsink = dsink.defined() ? dsink.add(mine.dsink) : mine.dsink;
    const std::pair<Tensor, Tensor> pairs[] = {
        {mine.out, all.out}, {mine.dq, all.dq}, {mine.dk, all.dk}, {mine.dv, all.dv}};
    for (const auto& [a, b] : pairs) {
      off = std::max(off, difference(a, b.index_select(0, rows)));
    }
  });
  if (c.biases) off = std::max(off, difference(dbias, all.dbias));
  return c.sink ? std::max(off, difference(dsink, all.dsink)) : off;
}

TEST(ContextAttention, EqualsOneRankWithAllRows) {
  for (const ContextComm type : kTypes) {
    for (const std::int64_t size : {1, 2, 4}) {
      EXPECT_LE(worst({.type = type}, size), 1e-12) << static_cast<int>(type) << " " << size;
      EXPECT_LE(worst({.type = type, .dropout = 0.3}, size), 1e-12)
          << static_cast<int>(type) << " " << size;
    }
    EXPECT_LE(worst({.type = type, .kv_heads = 2, .dropout = 0.3}, 2), 1e-12);
    EXPECT_LE(worst({.type = type, .alibi = true}, 4), 1e-12) << static_cast<int>(type);
    // Slopes without eight bits: places inside the document count, not distances alone.
    const Case rounded{.type = type, .heads = 16, .alibi = true, .alibi_in_bf16 = true};
    for (const std::int64_t size : {1, 2, 4}) {
      EXPECT_LE(worst(rounded, size), 1e-12) << static_cast<int>(type) << " " << size;
    }
    for (const std::int64_t size : {1, 2, 4}) {
      EXPECT_LE(worst({.type = type, .biases = true}, size), 1e-12) << static_cast<int>(type);
    }
    // Logits of hundreds: no exponential of anything above 0.
    EXPECT_LE(worst({.type = type, .scale = 300.0}, 2), 1e-11) << static_cast<int>(type);
  }
  for (const ContextComm type : {ContextComm::kP2p, ContextComm::kAllGather}) {
    EXPECT_LE(worst({.type = type, .kv_heads = 1, .dropout = 0.3}, 4), 1e-12);
    EXPECT_LE(worst({.type = type}, 3), 1e-12);
  }
}

// Chunks of 3 to 12 tokens: windows inside one, over several, over whole documents.
TEST(ContextAttention, WindowsSinksAndCaps) {
  for (const ContextComm type : kTypes) {
    for (const std::int64_t size : {1, 2, 4}) {
      for (const std::int64_t window : {0, 1, 2, 3, 5, 11, 23, 100}) {
        EXPECT_LE(worst({.type = type, .window = window}, size), 1e-12)
            << static_cast<int>(type) << " " << size << " window " << window;
      }
      const Case all{.type = type,
                     .kv_heads = 4,
                     .dropout = 0.3,
                     .alibi = true,
                     .window = 4,
                     .softcap = 1.5,
                     .sink = true};
      EXPECT_LE(worst(all, size), 1e-12) << static_cast<int>(type) << " " << size;
      EXPECT_LE(worst({.type = type, .sink = true}, size), 1e-12);
      EXPECT_LE(worst({.type = type, .softcap = 0.9}, size), 1e-12);
    }
  }
  const Case two{
      .type = ContextComm::kA2aP2p, .inner = 2, .window = 4, .sink = true, .biases = true};
  EXPECT_LE(worst(two, 4), 1e-12);
}

TEST(ContextAttention, TwoLevels) {
  const Case two{.type = ContextComm::kA2aP2p, .dropout = 0.3, .inner = 2};
  EXPECT_LE(worst(two, 2), 1e-12);
  EXPECT_LE(worst(two, 4), 1e-12);
  EXPECT_LE(worst({.type = ContextComm::kA2aP2p, .kv_heads = 2, .inner = 2}, 6), 1e-12);
  EXPECT_LE(worst({.type = ContextComm::kA2aP2p, .inner = 4}, 4), 1e-12);
  // Such cuts serve the other ways too.
  EXPECT_LE(worst({.type = ContextComm::kP2p, .inner = 2}, 4), 1e-12);
}

// The tests above would notice.
TEST(ContextAttention, MistakesAreNoticed) {
  for (const ContextComm type : {ContextComm::kP2p, ContextComm::kAllGather}) {
    EXPECT_GT(worst({.type = type}, 4, {.rank_shift = 1}), 1e-6) << static_cast<int>(type);
  }
  EXPECT_GT(worst({.type = ContextComm::kA2a}, 4, {.row_shift = 1}), 1e-6);
  EXPECT_GT(worst({}, 2, {.leave_out = 0}), 1e-6) << "keys not gathered";
  EXPECT_GT(worst({}, 2, {.leave_out = 1}), 1e-6) << "keys not gathered in backward";
  EXPECT_GT(worst({}, 2, {.leave_out = 2}), 1e-6) << "gradients of keys not summed";
}

// What one rank of a ring of `size` holds at most, beside what it is given and gives back. Its
// peers are not there: no thread but this one makes or frees a tensor.
struct RingMemory {
  std::int64_t shares = 0;     // packed keys and values of a rank
  std::int64_t gradients = 0;  // of these, which are added up in fp32
  std::int64_t bytes = 0;
};
struct RingPeaks {
  RingMemory forward, backward;
};

RingPeaks ring_peaks(std::int64_t size) {
  // Sizes of which no other tensor of an attention is.
  constexpr std::int64_t kShareRows = 40, kHeads = 6, kGroups = 2, kChannels = 12;
  constexpr std::int64_t kShareBytes = kShareRows * 2 * kGroups * kChannels * 2;
  const SequenceLayout whole({.boundaries = {0, kShareRows * size}});
  const auto peaks_watching = [&](std::int64_t bytes) {
    const auto backend = comm::make_fake_backend(size / 2, size);
    config::ParallelConfig parallel;
    parallel.world_size = parallel.context_parallel_size = size;
    comm::ParallelContext context(*backend, comm::make_grids(parallel));
    const SequenceLayout share = cut_sequence(
        whole, {.group = &context.group("cp"), .size = size, .rank = context.coordinate("cp")});
    const auto leaf = [&](std::int64_t heads) {
      return tensor::zeros({kShareRows, heads, kChannels}, DType::BFloat16).set_requires_grad(true);
    };
    const Tensor q = leaf(kHeads), k = leaf(kGroups), v = leaf(kGroups);
    const Tensor dout = tensor::zeros(q.sizes(), DType::BFloat16);
    tensor::MemoryMeter meter;
    meter.watch_blocks_of(bytes);
    const Tensor out = ring_attention(q, k, v, share, {});
    const std::pair forward{meter.peak_watched_blocks(), meter.peak_bytes()};
    // Counted on: the packed keys of this rank wait for backward.
    meter.reset_peak();
    ops::run_backward(out, dout);
    return std::pair{forward, std::pair{meter.peak_watched_blocks(), meter.peak_bytes()}};
  };
  const auto [shares, shares_back] = peaks_watching(kShareBytes);
  const auto [gradients, gradients_back] = peaks_watching(2 * kShareBytes);
  return {{shares.first, gradients.first, shares.second},
          {shares_back.first, gradients_back.first, shares_back.second}};
}

// Beside its own keys, which it keeps for backward, a rank has the share that it attends to and the
// one that arrives: never more than two that travel, forward and backward, however many ranks there
// are. Their gradients: those found here, those on their way on, and those that arrive.
TEST(ContextAttention, ARingHoldsTwoTravellingShares) {
  const RingPeaks alone = ring_peaks(1);
  EXPECT_EQ(alone.forward.shares, 1);
  EXPECT_EQ(alone.backward.shares, 1);
  const RingPeaks two = ring_peaks(2);
  EXPECT_EQ(two.forward.shares, 1 + 1);
  EXPECT_EQ(two.backward.shares, 1 + 1);
  const RingPeaks three = ring_peaks(3);
  for (const std::int64_t size : {3, 4, 8}) {
    const RingPeaks peaks = ring_peaks(size);
    EXPECT_EQ(peaks.forward.shares, 1 + 2) << size;
    EXPECT_EQ(peaks.backward.shares, 1 + 2) << size;
    EXPECT_EQ(peaks.forward.gradients, 0) << size;
    EXPECT_EQ(peaks.backward.gradients, 3) << size;
    // Nor does anything else grow with the ranks.
    EXPECT_EQ(peaks.backward.bytes, three.backward.bytes) << size;
    EXPECT_EQ(peaks.forward.bytes, three.forward.bytes) << size;
  }
}

TEST(ContextAttention, RefusesWhatDoesNotFit) {
  on_ranks(1, 1, {}, [&](const ContextPlace& place) {
    const Tensor x = random_tensor({kRows, 4, kDim}, "x");
    const SequenceLayout share = cut_sequence(layout(), place);
    const Tensor fewer = x.narrow(0, 0, 24);
    for (const ContextComm type : kTypes) {
      EXPECT_THROW((void)context_attention(type, x, x, x, layout(), {}), Error) << "not cut";
      EXPECT_NO_THROW((void)context_attention(type, x, x, x, share, {}));
      EXPECT_THROW((void)context_attention(type, x, x, x, share, {.causal = false}), Error);
      EXPECT_THROW((void)context_attention(type, fewer, fewer, fewer, share, {}), Error);
    }
  });
  on_ranks(4, 1, {}, [&](const ContextPlace& place) {
    const SequenceLayout share = cut_sequence(layout(), place);
    const Tensor q = random_tensor({kRows / 4, 4, kDim}, "q"), k = q.narrow(1, 0, 2);
    try {
      (void)exchanged_attention(q, k, k, share, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find("4 query heads and 2 key heads"), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace pentatron::parallel_layers

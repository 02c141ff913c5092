// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/sequence_cut.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {
namespace {

using Values = std::vector<std::int64_t>;
using Rows = std::shared_ptr<const SequenceRows>;

// Chunks [begin, end) of every sample, of `of` equal ones.
struct Chunks {
  std::int64_t begin = 0;
  std::int64_t end = 1;
  std::int64_t of = 1;
};

Chunks first_half(const ContextPlace& place) {
  return {place.rank, place.rank + 1, 2 * place.size};
}
Chunks second_half(const ContextPlace& place) {
  return {2 * place.size - 1 - place.rank, 2 * place.size - place.rank, 2 * place.size};
}

struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t length() const { return end - begin; }
};

// Of one sample, in rows of the whole sequence.
Span span_of(const SequenceRows& whole, std::size_t sample, const Chunks& chunks) {
  const std::int64_t begin = whole.samples[sample];
  const std::int64_t chunk = (whole.samples[sample + 1] - begin) / chunks.of;
  return {begin + chunks.begin * chunk, begin + chunks.end * chunk};
}

// Appends the chunks' rows with all that is known of them.
void append_rows(const SequenceRows& whole, const Chunks& chunks, SequenceRows& out,
                 Values& indices) {
  for (std::size_t sample = 0; sample + 1 < whole.samples.size(); ++sample) {
    const Span span = span_of(whole, sample, chunks);
    for (std::int64_t row = span.begin; row < span.end; ++row) {
      const bool begins = row == span.begin ||
                          std::binary_search(whole.boundaries.begin(), whole.boundaries.end(), row);
      if (begins) out.boundaries.push_back(static_cast<std::int64_t>(indices.size()));
      indices.push_back(row);
      out.positions.push_back(whole.positions[static_cast<std::size_t>(row)]);
      out.sample_ids.push_back(whole.sample_ids[static_cast<std::size_t>(row)]);
      out.token_index.push_back(whole.token_index[static_cast<std::size_t>(row)]);
    }
    out.samples.push_back(static_cast<std::int64_t>(indices.size()));
  }
}

struct RankRows {
  SequenceRows rows{.samples = {0}};
  Values indices;
};

RankRows rows_of(const SequenceRows& whole, const std::vector<Chunks>& parts) {
  RankRows out;
  for (const Chunks& chunks : parts) append_rows(whole, chunks, out.rows, out.indices);
  out.rows.boundaries.push_back(static_cast<std::int64_t>(out.indices.size()));
  return out;
}

// Queries of some chunks with the keys of others that they see under a causal mask: segment by
// segment of the whole sequence, with what nobody sees in between.
class SegmentList final {
 public:
  // `begin`: of the segment in the whole sequence.
  void add(std::int64_t begin, const Span& queries, const Span& keys, std::int64_t key_offset) {
    if (keys.length() > 0) {
      pass_keys(keys.begin + key_offset);
      push(queries.length(), keys.length(), queries.end - keys.end, keys.begin - begin);
    } else {
      push(queries.length(), 0);
    }
  }
  void pass_keys(std::int64_t end) {
    if (end > num_k_) push(0, end - num_k_);
  }
  [[nodiscard]] std::vector<AttentionSegment> take() { return std::move(segments_); }

 private:
  void push(std::int64_t q_len, std::int64_t k_len, std::int64_t apart = 0,
            std::int64_t before = 0) {
    segments_.push_back({num_q_, q_len, num_k_, k_len, apart, before});
    num_q_ += q_len;
    num_k_ += k_len;
  }
  std::vector<AttentionSegment> segments_;
  std::int64_t num_q_ = 0;
  std::int64_t num_k_ = 0;
};

// Chunks of a sequence with all that is known of their rows.
struct Part {
  Chunks chunks;
  Rows rows;
};
Part part_of(const SequenceRows& whole, const Chunks& chunks) {
  return {chunks, std::make_shared<const SequenceRows>(rows_of(whole, {chunks}).rows)};
}

AttentionSegmentsPtr attention_of(const SequenceRows& whole, const Part& queries,
                                  const Part& keys) {
  SegmentList list;
  std::int64_t k_rows = 0;
  for (std::size_t sample = 0; sample + 1 < whole.samples.size(); ++sample) {
    const Span q = span_of(whole, sample, queries.chunks);
    const Span k = span_of(whole, sample, keys.chunks);
    const std::int64_t offset = k_rows - k.begin;
    auto end = std::upper_bound(whole.boundaries.begin(), whole.boundaries.end(), q.begin);
    for (std::int64_t row = q.begin; row < q.end; ++end) {
      const Span segment{row, std::min(*end, q.end)};
      const std::int64_t begin = *std::prev(end), first_key = std::max(begin, k.begin);
      // No query of the segment sees beyond the last one.
      list.add(begin, segment, {first_key, std::max(first_key, std::min(segment.end, k.end))},
               offset);
      row = segment.end;
    }
    k_rows += k.length();
  }
  list.pass_keys(k_rows);
  return make_segments(list.take(), queries.rows, keys.rows);
}

bool any_visible(const AttentionSegments& plan) {
  return std::any_of(plan.segments.begin(), plan.segments.end(),
                     [](const AttentionSegment& s) { return s.q_len > 0 && s.k_len > 0; });
}

using Halves = std::array<Part, 2>;
Halves halves_of(const SequenceRows& whole, const ContextPlace& place) {
  return {part_of(whole, first_half(place)), part_of(whole, second_half(place))};
}

std::vector<std::vector<RingBlock>> ring_of(const SequenceRows& whole, const ContextPlace& place,
                                            const Halves& mine) {
  std::vector<std::vector<RingBlock>> ring;
  for (std::int64_t step = 0; step < place.size; ++step) {
    const ContextPlace other{.size = place.size,
                             .rank = (place.rank - step + place.size) % place.size};
    const Halves theirs = step == 0 ? mine : halves_of(whole, other);
    std::vector<RingBlock>& blocks = ring.emplace_back();
    for (std::size_t q = 0; q < 2; ++q) {
      for (std::size_t k = 0; k < 2; ++k) {
        if (theirs[k].chunks.begin > mine[q].chunks.begin) continue;
        AttentionSegmentsPtr rows = attention_of(whole, mine[q], theirs[k]);
        if (!any_visible(*rows)) continue;
        blocks.push_back({.q_half = q,
                          .k_half = k,
                          .causal = theirs[k].chunks.begin == mine[q].chunks.begin,
                          .rows = std::move(rows)});
      }
    }
  }
  return ring;
}

void check_whole(const SequenceRows& whole, std::int64_t size) {
  for (std::size_t sample = 0; sample + 1 < whole.samples.size(); ++sample) {
    const std::int64_t length = whole.samples[sample + 1] - whole.samples[sample];
    PENTATRON_CHECK(length % (2 * size) == 0, kConfig,
                    "a sample of {} tokens does not divide by 2 x --context-parallel-size {}: "
                    "change the one (--seq-length) or the other",
                    length, size);
    PENTATRON_CHECK(
        std::binary_search(whole.boundaries.begin(), whole.boundaries.end(), whole.samples[sample]),
        kInternal, "an attention segment goes over row {}, where a sample begins",
        whole.samples[sample]);
  }
}

Values indices_of(const SequenceRows& whole, const ContextPlace& place) {
  return rows_of(whole, {first_half(place), second_half(place)}).indices;
}

// `layout`, whose rows are `rows` of a whole, as it lies on ranks that hold `of_ranks` of them.
GatheredRows gathered(comm::Group* group, const SequenceLayout& layout, const Values& rows,
                      const std::vector<Values>& of_ranks) {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;  // row of the whole, its place here
  for (const Values& indices : of_ranks) {
    for (const std::int64_t index : indices) {
      found.emplace_back(index, static_cast<std::int64_t>(found.size()));
    }
  }
  PENTATRON_CHECK(found.size() == rows.size(), kInternal, "{} rows on the ranks, {} together",
                  found.size(), rows.size());
  std::sort(found.begin(), found.end());
  Values from_ranks(rows.size()), to_ranks(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto at =
        std::lower_bound(found.begin(), found.end(), std::pair{rows[i], std::int64_t{0}});
    from_ranks[i] = at->second;
    to_ranks[static_cast<std::size_t>(at->second)] = static_cast<std::int64_t>(i);
  }
  return {.group = group,
          .layout = layout,
          .from_ranks = tensor::from_vector(from_ranks),
          .to_ranks = tensor::from_vector(to_ranks)};
}

GatheredRows whole_of(const SequenceLayout& whole, const SequenceRows& rows,
                      const ContextPlace& place) {
  std::vector<Values> of_ranks;
  for (std::int64_t rank = 0; rank < place.size; ++rank) {
    of_ranks.push_back(indices_of(rows, {.size = place.size, .rank = rank}));
  }
  Values all(static_cast<std::size_t>(whole.num_rows()));
  std::iota(all.begin(), all.end(), 0);
  return gathered(place.group, whole, all, of_ranks);
}

// Neighbours' chunks lie side by side: together they are a share of fewer, longer chunks.
std::shared_ptr<const GatheredRows> inner_of(const SequenceLayout& whole, const SequenceRows& rows,
                                             const ContextPlace& place) {
  const ContextPlace outer{.group = place.outer_group,
                           .size = place.size / place.inner_size,
                           .rank = place.rank / place.inner_size};
  std::vector<Values> of_ranks;
  for (std::int64_t inner = 0; inner < place.inner_size; ++inner) {
    of_ranks.push_back(
        indices_of(rows, {.size = place.size, .rank = outer.rank * place.inner_size + inner}));
  }
  return std::make_shared<const GatheredRows>(
      gathered(place.inner_group, cut_sequence(whole, outer), indices_of(rows, outer), of_ranks));
}

GatheredRows moved_to(const GatheredRows& rows, Device device, const SegmentPadding& padding) {
  return {.group = rows.group,
          .layout = rows.layout.to(device, padding),
          .from_ranks = rows.from_ranks.to(device),
          .to_ranks = rows.to_ranks.to(device)};
}

}  // namespace

SequenceLayout cut_sequence(const SequenceLayout& whole, const ContextPlace& place) {
  PENTATRON_CHECK(whole.cut() == nullptr, kInternal, "a sequence that was cut is cut again");
  const SequenceRows& rows = whole.rows();
  check_whole(rows, place.size);
  const Device device = whole.positions().device();
  const SequenceLayout host = whole.to(kCpu);
  const Halves mine = halves_of(rows, place);
  auto cut = std::make_shared<SequenceCut>();
  cut->whole = whole_of(host, rows, place);
  cut->rows = tensor::from_vector(indices_of(rows, place));
  const Part everything{{0, 1, 1}, host.attention()->q_rows};
  for (std::size_t half = 0; half < 2; ++half) {
    cut->halves_with_whole[half] = attention_of(rows, mine[half], everything);
  }
  cut->ring = ring_of(rows, place, mine);
  if (place.inner_size > 1) cut->inner = inner_of(host, rows, place);
  const SequenceLayout share(rows_of(rows, {first_half(place), second_half(place)}).rows);
  return share.with_cut(std::move(cut)).to(device);
}

Batch cut_batch(const Batch& whole, const ContextPlace& place) {
  PENTATRON_CHECK(whole.sequences.size() == 1, kUnsupported,
                  "--context-parallel-size {}: a batch of {} sequences cannot be cut yet",
                  place.size, whole.sequences.size());
  const SequenceLayout mine = cut_sequence(whole.text(), place);
  Batch batch;
  for (const auto& [name, values] : whole.fields) {
    PENTATRON_CHECK(!values.defined() || values.size(0) == whole.num_tokens(), kUnsupported,
                    "--context-parallel-size {}: the field '{}' of a batch has {} rows, its text "
                    "{}: it cannot be cut",
                    place.size, name, values.size(0), whole.num_tokens());
    batch.fields.emplace(name, values.defined()
                                   ? values.index_select(0, mine.cut()->rows.to(values.device()))
                                   : values);
  }
  batch.sequences.emplace(std::string(Batch::kText), mine);
  return batch;
}

SequenceCutPtr to_device(const SequenceCut& cut, Device device, const SegmentPadding& padding) {
  auto moved = std::make_shared<SequenceCut>(cut);
  moved->whole = moved_to(cut.whole, device, padding);
  moved->rows = cut.rows.to(device);
  for (AttentionSegmentsPtr& half : moved->halves_with_whole) {
    half = to_device(*half, device, padding);
  }
  for (std::vector<RingBlock>& blocks : moved->ring) {
    for (RingBlock& block : blocks) block.rows = to_device(*block.rows, device, padding);
  }
  if (cut.inner != nullptr) {
    moved->inner = std::make_shared<const GatheredRows>(moved_to(*cut.inner, device, padding));
  }
  return moved;
}

}  // namespace pentatron

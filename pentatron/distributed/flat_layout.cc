// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Elements that begin at a multiple of alignment_bytes in the parameter buffer and in the gradient
// buffer.
std::int64_t alignment_elements(const FlatLayoutOptions& options, const PrecisionPolicy& policy) {
  const std::int64_t smallest =
      std::min(tensor::item_bytes(policy.parameter), tensor::item_bytes(policy.main_grad));
  PENTATRON_CHECK(options.alignment_bytes >= smallest && options.alignment_bytes % 16 == 0,
                  kInternal, "flat buffers cannot be aligned to {} bytes", options.alignment_bytes);
  return options.alignment_bytes / smallest;
}

bool is_tied(const nn::Parameter& parameter) {
  return std::any_of(parameter.spec().parts.begin(), parameter.spec().parts.end(),
                     [](const nn::ShardPart& part) { return part.tied; });
}

const std::string& grid_of(const nn::Parameter& parameter) {
  const std::vector<nn::ShardPart>& parts = parameter.spec().parts;
  for (const nn::ShardPart& part : parts) {
    PENTATRON_CHECK(part.grid == parts[0].grid, kInternal,
                    "weight {}: parts on grid '{}' and on grid '{}' cannot share a buffer",
                    parameter.local_name(), parts[0].grid, part.grid);
  }
  return parts[0].grid;
}

// Removes the parameters of other grids, and takes the frozen ones out.
std::vector<nn::Parameter*> select(std::vector<nn::Unit>& units, std::string grid) {
  std::vector<nn::Parameter*> frozen;
  const bool all = grid.empty();
  for (nn::Unit& unit : units) {
    std::erase_if(unit.parameters, [&](nn::Parameter* parameter) {
      const std::string& its_grid = grid_of(*parameter);
      if (all && grid.empty()) grid = its_grid;
      PENTATRON_CHECK(!all || its_grid == grid, kInternal,
                      "weight {} is on grid '{}', others of its flat buffer on '{}': name one grid",
                      parameter->local_name(), its_grid, grid);
      if (its_grid != grid) return true;
      if (!parameter->trainable()) frozen.push_back(parameter);
      return !parameter->trainable();
    });
  }
  return frozen;
}

// With how many elements a bucket is full.
std::int64_t bucket_elements(const std::vector<nn::Unit>& units, const FlatLayoutOptions& options,
                             const PrecisionPolicy& policy) {
  if (options.bucket_elements > 0) return options.bucket_elements;
  if (options.num_buckets > 0) {
    std::int64_t all = 0;
    for (const nn::Unit& unit : units) {
      for (const nn::Parameter* parameter : unit.parameters) all += parameter->num_local_elements();
    }
    return std::max<std::int64_t>(1, (all + options.num_buckets - 1) / options.num_buckets);
  }
  return std::max<std::int64_t>(1, options.bucket_bytes / tensor::item_bytes(policy.main_grad));
}

}  // namespace

struct FlatLayout::Draft {
  bool by_matrices = false;
  std::int64_t elements = 0;
  std::vector<std::pair<int, nn::Parameter*>> parameters;  // unit, in order of backward
};

// In the order in which backward completes them. Matrices that stay whole and what is cut by
// elements fill buckets of their own, side by side.
std::vector<FlatLayout::Draft> FlatLayout::draft_buckets(const std::vector<nn::Unit>& units,
                                                         const PrecisionPolicy& policy) const {
  const std::int64_t usual = bucket_elements(units, options_, policy);
  std::vector<Draft> drafts;
  std::optional<Draft> open[2];  // by elements, by matrices
  const auto close = [&](std::optional<Draft>& draft) {
    if (draft) drafts.push_back(std::move(*draft));
    draft.reset();
  };
  for (int unit = static_cast<int>(units.size()); unit-- > 0;) {
    const std::vector<nn::Parameter*>& parameters =
        units[static_cast<std::size_t>(unit)].parameters;
    for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
      nn::Parameter& parameter = **it;
      PENTATRON_CHECK(parameter.dtype() == policy.parameter, kInternal,
                      "weight {} is {}, the flat buffer holds {}", parameter.local_name(),
                      tensor::dtype_name(parameter.dtype()), tensor::dtype_name(policy.parameter));
      const bool by_matrices =
          options_.cut == ShardCut::kMatrices && nn::is_matrix(parameter.spec());
      std::optional<Draft>& draft = open[by_matrices ? 1 : 0];
      // A tied weight is final only after the other end's share has come: a bucket of its own keeps
      // the others from waiting.
      const bool alone = is_tied(parameter);
      if (alone) close(draft);
      if (!draft) draft = Draft{.by_matrices = by_matrices, .elements = 0, .parameters = {}};
      draft->parameters.emplace_back(unit, &parameter);
      draft->elements += parameter.num_local_elements();
      // Whole matrices are dealt evenly only where there are several for each rank.
      const std::int64_t full = by_matrices ? usual * options_.num_shards : usual;
      if (alone || draft->elements >= full) close(draft);
    }
    if (!options_.bucket_per_unit) continue;
    for (std::optional<Draft>& draft : open) close(draft);
  }
  for (std::optional<Draft>& draft : open) close(draft);
  return drafts;
}

FlatLayout::FlatLayout(const std::vector<nn::Unit>& units, const FlatLayoutOptions& options,
                       const PrecisionPolicy& policy)
    : options_(options), num_units_(static_cast<int>(units.size())) {
  PENTATRON_CHECK(options.num_shards >= 1 && options.bucket_bytes >= 1 &&
                      options.bucket_elements >= 0 && options.num_buckets >= 0,
                  kInternal, "flat buffers need at least 1 shard and buckets of at least 1 byte");
  std::vector<nn::Unit> selected = units;
  frozen_ = select(selected, options.grid);
  const std::int64_t alignment = alignment_elements(options, policy);
  for (const Draft& draft : draft_buckets(selected, policy)) {
    buckets_.push_back({num_elements_, num_elements_, {}, {}});
    if (draft.by_matrices) {
      lay_out_by_matrices(draft, alignment);
    } else {
      lay_out_by_elements(draft, alignment);
    }
    FlatBucket& bucket = buckets_.back();
    for (const auto& [unit, parameter] : draft.parameters) {
      if (bucket.units.empty() || bucket.units.back() != unit) bucket.units.push_back(unit);
    }
    num_elements_ = bucket.end;
  }
}

void FlatLayout::lay_out_by_elements(const Draft& draft, std::int64_t alignment) {
  FlatBucket& bucket = buckets_.back();
  std::int64_t cursor = bucket.begin;
  for (const auto& [unit, parameter] : draft.parameters) {
    const std::int64_t begin = round_up(cursor, alignment);
    cursor = begin + parameter->num_local_elements();
    bucket.slots.push_back(slots_.size());
    slots_.push_back({parameter, unit, begin, cursor});
  }
  bucket.end = bucket.begin + round_up(cursor - bucket.begin, options_.num_shards * alignment);
}

// The largest first, each to the shard with the least so far. Shards are as long as the longest.
void FlatLayout::lay_out_by_matrices(const Draft& draft, std::int64_t alignment) {
  FlatBucket& bucket = buckets_.back();
  const auto padded = [&](std::size_t i) {
    return round_up(draft.parameters[i].second->num_local_elements(), alignment);
  };
  std::vector<std::size_t> order(draft.parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return padded(a) > padded(b); });
  std::vector<std::vector<std::size_t>> shards(static_cast<std::size_t>(options_.num_shards));
  std::vector<std::int64_t> sizes(shards.size(), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(sizes.begin(), sizes.end()) - sizes.begin();
    shards[static_cast<std::size_t>(least)].push_back(i);
    sizes[static_cast<std::size_t>(least)] += padded(i);
  }
  const std::int64_t shard_size = *std::max_element(sizes.begin(), sizes.end());
  for (std::size_t s = 0; s < shards.size(); ++s) {
    std::int64_t cursor = bucket.begin + static_cast<std::int64_t>(s) * shard_size;
    for (const std::size_t i : shards[s]) {
      const auto& [unit, parameter] = draft.parameters[i];
      bucket.slots.push_back(slots_.size());
      slots_.push_back({parameter, unit, cursor, cursor + parameter->num_local_elements()});
      cursor += padded(i);
    }
  }
  bucket.end = bucket.begin + shard_size * options_.num_shards;
}

std::pair<std::int64_t, std::int64_t> FlatLayout::shard_range(std::size_t bucket,
                                                              std::int64_t shard) const {
  PENTATRON_CHECK(bucket < buckets_.size() && shard >= 0 && shard < options_.num_shards, kInternal,
                  "no shard {} of {} of bucket {}", shard, options_.num_shards, bucket);
  const FlatBucket& b = buckets_[bucket];
  const std::int64_t length = b.size() / options_.num_shards;
  return {b.begin + shard * length, b.begin + (shard + 1) * length};
}

std::size_t FlatLayout::bucket_of(const nn::Parameter& parameter) const {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const std::size_t s : buckets_[b].slots) {
      if (slots_[s].parameter == &parameter) return b;
    }
  }
  PENTATRON_THROW(kInternal, "weight {} has no place in this flat buffer", parameter.local_name());
}

std::vector<FlatSegment> segments_in(const FlatLayout& layout, std::int64_t begin,
                                     std::int64_t end) {
  std::vector<FlatSegment> segments;
  const std::vector<FlatSlot>& slots = layout.slots();
  auto slot =
      std::lower_bound(slots.begin(), slots.end(), begin,
                       [](const FlatSlot& s, std::int64_t position) { return s.end <= position; });
  for (; slot != slots.end() && slot->begin < end; ++slot) {
    const nn::ShardSpec& spec = slot->parameter->spec();
    const std::int64_t row_elements = std::accumulate(
        spec.local_shape.begin() + 1, spec.local_shape.end(), std::int64_t{1}, std::multiplies<>());
    for (const nn::ShardPart& part : spec.parts) {
      // The real rows come first in the part's local rows, and boxes have the local tensor's row
      // length: one range.
      const std::int64_t part_begin = slot->begin + part.local_row_begin * row_elements;
      const std::int64_t part_end = part_begin + part.box.num_elements();
      const std::int64_t from = std::max(begin, part_begin);
      const std::int64_t to = std::min(end, part_end);
      if (from < to) {
        segments.push_back({slot->parameter, &part, from, to - from, from - part_begin});
      }
    }
  }
  return segments;
}

}  // namespace pentatron::distributed

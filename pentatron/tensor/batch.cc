// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/batch.h"

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron {
namespace {

template <typename Map>
const typename Map::mapped_type& find(const Map& map, std::string_view name, const char* what) {
  const auto found = map.find(name);
  if (found != map.end()) return found->second;
  std::string known;
  for (const auto& [key, value] : map) known += (known.empty() ? "" : ", ") + key;
  PENTATRON_THROW(kInternal, "a batch without the {} '{}': it has {}", what, name,
                  known.empty() ? "none" : known);
}

void check_positions(const SequenceLayout& layout, const std::string& name,
                     std::int64_t num_positions) {
  if (layout.min_position() >= 0 && layout.max_position() < num_positions) return;
  const std::vector<std::int64_t>& positions = layout.rows().positions;
  const auto bad = std::find_if(positions.begin(), positions.end(), [&](std::int64_t position) {
    return position < 0 || position >= num_positions;
  });
  PENTATRON_THROW(kData,
                  "token {} of a batch's {} has the position {}, the model has {} "
                  "(--max-position-embeddings, --seq-length)",
                  bad - positions.begin(), name, *bad, num_positions);
}

}  // namespace

const SequenceLayout& Batch::sequence(std::string_view name) const {
  return find(sequences, name, "sequence");
}

const Tensor& Batch::field(std::string_view name) const { return find(fields, name, "field"); }

void check_positions(const Batch& batch, std::int64_t num_positions) {
  for (const auto& [name, layout] : batch.sequences) check_positions(layout, name, num_positions);
}

Batch to_device(Batch batch, Device device, const SegmentPadding& padding) {
  for (auto& [name, layout] : batch.sequences) layout = layout.to(device, padding);
  for (auto& [name, values] : batch.fields) {
    if (!values.defined()) continue;
    // Goes on in the current stream: what is copied from may be changed when it has come that far.
    values = values.to(device, values.scalar_type(), /*non_blocking=*/values.is_cpu());
  }
  return batch;
}

}  // namespace pentatron

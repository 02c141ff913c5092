// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sample_batch.h"

#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

void append(SampleBatch::Sequence& all, const SampleSequence& one, std::int64_t id) {
  if (all.samples.empty()) all.samples = all.boundaries = {0};
  all.positions.insert(all.positions.end(), one.positions.begin(), one.positions.end());
  const auto rows = static_cast<std::int64_t>(all.positions.size());
  all.samples.push_back(rows);
  for (const std::int32_t run : one.runs) all.boundaries.push_back(all.boundaries.back() + run);
  PENTATRON_CHECK(all.boundaries.back() == rows, kInternal,
                  "the runs of a sequence of sample {} do not sum to its {} rows", id,
                  one.positions.size());
}

void append(FieldValues& all, const FieldValues& one, std::int64_t id, const std::string& name) {
  std::visit(
      [&](const auto& values) {
        auto* so_far = std::get_if<std::decay_t<decltype(values)>>(&all);
        PENTATRON_CHECK(so_far != nullptr, kInternal,
                        "field '{}' of sample {} holds another kind of values than the first's",
                        name, id);
        so_far->insert(so_far->end(), values.begin(), values.end());
      },
      one);
}

void append(SampleBatch& batch, const Sample& sample, std::int64_t id, bool first) {
  if (first) {
    for (const auto& [name, sequence] : sample.sequences) batch.sequences[name];
    for (const auto& [name, values] : sample.fields) {
      batch.fields[name] = std::visit(
          [](const auto& v) { return FieldValues(std::decay_t<decltype(v)>()); }, values);
    }
  }
  PENTATRON_CHECK(
      sample.sequences.size() == batch.sequences.size() &&
          sample.fields.size() == batch.fields.size(),
      kInternal, "sample {} has {} sequences and {} fields, the batch's first {} and {}", id,
      sample.sequences.size(), sample.fields.size(), batch.sequences.size(), batch.fields.size());
  for (auto& [name, all] : batch.sequences) append(all, sample.sequence(name), id);
  for (auto& [name, all] : batch.fields) {
    const auto found = sample.fields.find(name);
    PENTATRON_CHECK(found != sample.fields.end(), kInternal, "sample {} has no field '{}'", id,
                    name);
    append(all, found->second, id, name);
  }
}

}  // namespace

SampleBatch make_batch(const SampleSource& source, std::vector<std::int64_t> sample_ids) {
  SampleBatch batch;
  bool first = true;
  for (const std::int64_t id : sample_ids) {
    const Sample sample = source.sample(id);
    PENTATRON_CHECK(sample.length() == source.length(id), kInternal,
                    "sample {} has {} rows, its source says {}", id, sample.length(),
                    source.length(id));
    append(batch, sample, id, std::exchange(first, false));
  }
  batch.sample_ids = std::move(sample_ids);
  return batch;
}

}  // namespace pentatron::datasets

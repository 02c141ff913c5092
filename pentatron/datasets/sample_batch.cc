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

namespace {

// Rows that each sample lacks.
std::vector<std::int64_t> missing_rows(const SampleBatch::Sequence& sequence,
                                       std::int64_t multiple) {
  std::vector<std::int64_t> missing;
  for (std::size_t i = 0; i + 1 < sequence.samples.size(); ++i) {
    const std::int64_t rows = sequence.samples[i + 1] - sequence.samples[i];
    missing.push_back((multiple - rows % multiple) % multiple);
  }
  return missing;
}

SampleBatch::Sequence padded(const SampleBatch::Sequence& all,
                             const std::vector<std::int64_t>& missing) {
  SampleBatch::Sequence out{.samples = {0}, .boundaries = {0}, .positions = {}};
  auto boundary = all.boundaries.begin() + 1;
  std::int64_t added = 0;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const std::int64_t end = all.samples[i + 1];
    for (; boundary != all.boundaries.end() && *boundary <= end; ++boundary) {
      out.boundaries.push_back(*boundary + added);
    }
    out.positions.insert(out.positions.end(), all.positions.begin() + all.samples[i],
                         all.positions.begin() + end);
    for (std::int64_t t = 0; t < missing[i]; ++t) out.positions.push_back(t);
    added += missing[i];
    if (missing[i] > 0) out.boundaries.push_back(end + added);
    out.samples.push_back(end + added);
  }
  return out;
}

}  // namespace

SampleBatch padded_samples(SampleBatch batch, std::int64_t multiple) {
  PENTATRON_CHECK(multiple >= 1, kInternal, "samples padded to multiples of {}", multiple);
  PENTATRON_CHECK(batch.sequences.size() == 1, kUnsupported,
                  "samples of {} sequences cannot be padded yet", batch.sequences.size());
  SampleBatch::Sequence& sequence = batch.sequences.begin()->second;
  const SampleBatch::Sequence before = sequence;
  const std::vector<std::int64_t> missing = missing_rows(before, multiple);
  sequence = padded(before, missing);
  for (auto& [name, field] : batch.fields) {
    std::visit(
        [&, &name = name](auto& values) {
          PENTATRON_CHECK(values.size() == before.positions.size(), kUnsupported,
                          "the field '{}' has {} values for {} rows: it cannot be padded", name,
                          values.size(), before.positions.size());
          std::decay_t<decltype(values)> out;
          for (std::size_t i = 0; i < missing.size(); ++i) {
            out.insert(out.end(), values.begin() + before.samples[i],
                       values.begin() + before.samples[i + 1]);
            out.resize(out.size() + static_cast<std::size_t>(missing[i]));
          }
          values = std::move(out);
        },
        field);
  }
  return batch;
}

}  // namespace pentatron::datasets

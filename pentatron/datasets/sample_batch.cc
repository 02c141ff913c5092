// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sample_batch.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

void append_sequence(SampleBatch::Sequence& all, const SampleSequence& one, std::int64_t id) {
  all.positions.insert(all.positions.end(), one.positions.begin(), one.positions.end());
  const auto rows = static_cast<std::int64_t>(all.positions.size());
  all.samples.push_back(rows);
  for (const std::int32_t run : one.runs) all.boundaries.push_back(all.boundaries.back() + run);
  PENTATRON_CHECK(all.boundaries.back() == rows, kInternal,
                  "the runs of a sequence of sample {} do not sum to its {} rows", id,
                  one.positions.size());
}

void append_field(SampleBatch::Field& all, const FieldValues& one, std::int64_t id,
                  const std::string& name) {
  std::visit(
      [&](const auto& values) {
        using Value = typename std::decay_t<decltype(values)>::value_type;
        auto* so_far = std::get_if<std::pmr::vector<Value>>(&all);
        PENTATRON_CHECK(so_far != nullptr, kInternal,
                        "field '{}' of sample {} holds another kind of values than the first's",
                        name, id);
        so_far->insert(so_far->end(), values.begin(), values.end());
      },
      one);
}

template <typename Map, typename Other>
bool same_names(const Map& a, const Other& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

template <typename T>
std::span<const T> values_of(const std::map<std::string, SampleBatch::Field, std::less<>>& fields,
                             std::string_view field, const char* kind) {
  const auto found = fields.find(field);
  const auto* values =
      found == fields.end() ? nullptr : std::get_if<std::pmr::vector<T>>(&found->second);
  PENTATRON_CHECK(values != nullptr, kInternal, "a batch has no field '{}' of {}", field, kind);
  return *values;
}

}  // namespace

// Empties what is there, and keeps its memory where the samples are of the same form.
void SampleBatch::begin(const Sample& first, std::size_t num_samples) {
  if (!same_names(sequences, first.sequences)) sequences.clear();
  for (const auto& [name, sequence] : first.sequences) {
    Sequence& all = sequences[name];
    all.samples.assign(1, 0);
    all.boundaries.assign(1, 0);
    all.positions.clear();
    all.positions.reserve(num_samples * sequence.positions.size());
  }
  if (!same_names(fields, first.fields)) fields.clear();
  std::pmr::memory_resource* const memory =
      memory_ != nullptr ? memory_.get() : std::pmr::get_default_resource();
  for (const auto& [name, values] : first.fields) {
    std::visit(
        [&, &name = name](const auto& one) {
          using Values = std::pmr::vector<typename std::decay_t<decltype(one)>::value_type>;
          const auto [at, is_new] = fields.try_emplace(name, Values(memory));
          // Assigning would keep the resource of what stood there.
          if (!std::holds_alternative<Values>(at->second))
            at->second.template emplace<Values>(memory);
          auto& all = std::get<Values>(at->second);
          all.clear();
          all.reserve(num_samples * one.size());
        },
        values);
  }
}

void SampleBatch::append(const Sample& sample, std::int64_t id) {
  PENTATRON_CHECK(
      sample.sequences.size() == sequences.size() && sample.fields.size() == fields.size(),
      kInternal, "sample {} has {} sequences and {} fields, the batch's first {} and {}", id,
      sample.sequences.size(), sample.fields.size(), sequences.size(), fields.size());
  for (auto& [name, all] : sequences) append_sequence(all, sample.sequence(name), id);
  for (auto& [name, all] : fields) {
    const auto found = sample.fields.find(name);
    PENTATRON_CHECK(found != sample.fields.end(), kInternal, "sample {} has no field '{}'", id,
                    name);
    append_field(all, found->second, id, name);
  }
}

void SampleBatch::read(const SampleSource& source, std::vector<std::int64_t> ids) {
  sample_ids.clear();
  bool first = true;
  for (const std::int64_t id : ids) {
    const Sample sample = source.sample(id);
    PENTATRON_CHECK(sample.length() == source.length(id), kInternal,
                    "sample {} has {} rows, its source says {}", id, sample.length(),
                    source.length(id));
    if (std::exchange(first, false)) begin(sample, ids.size());
    append(sample, id);
  }
  sample_ids = std::move(ids);
}

std::span<const std::int64_t> SampleBatch::ids(std::string_view field) const {
  return values_of<std::int64_t>(fields, field, "ids");
}

std::span<const float> SampleBatch::weights(std::string_view field) const {
  return values_of<float>(fields, field, "weights");
}

SampleBatch make_batch(const SampleSource& source, std::vector<std::int64_t> sample_ids) {
  SampleBatch batch;
  batch.read(source, std::move(sample_ids));
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "pentatron/datasets/sample_source.h"

namespace pentatron::datasets {

// One micro-batch: samples laid side by side, name by name. Its memory is kept when it is read
// anew, so a batch that is used again and again allocates nothing. The fields, which go to the
// device, lie in memory of a resource that may be pinned.
class SampleBatch final {
 public:
  struct Sequence {
    std::vector<std::int64_t> samples;     // rows where samples begin: 0 first, all rows last
    std::vector<std::int64_t> boundaries;  // rows where attention segments begin, likewise
    std::vector<std::int64_t> positions;   // [rows]
  };
  // Those of the samples, one after another.
  using Field = std::variant<std::pmr::vector<std::int64_t>, std::pmr::vector<float>>;

  SampleBatch() = default;
  // Null: plain memory.
  explicit SampleBatch(std::shared_ptr<std::pmr::memory_resource> memory)
      : memory_(std::move(memory)) {}

  // Reads the samples and lays them side by side, in place of what was there. ErrorKind::kInternal
  // for a sample with other names than the first or another length than the source says, or runs
  // that do not sum to its rows.
  void read(const SampleSource& source, std::vector<std::int64_t> sample_ids);

  // A name that is not there, or of the other kind: ErrorKind::kInternal.
  [[nodiscard]] std::span<const std::int64_t> ids(std::string_view field) const;
  [[nodiscard]] std::span<const float> weights(std::string_view field) const;

  std::vector<std::int64_t> sample_ids;  // places in training order
  std::map<std::string, Sequence, std::less<>> sequences;
  std::map<std::string, Field, std::less<>> fields;

 private:
  void begin(const Sample& first, std::size_t num_samples);
  void append(const Sample& sample, std::int64_t id);

  std::shared_ptr<std::pmr::memory_resource> memory_;
};

// A new batch of these samples.
[[nodiscard]] SampleBatch make_batch(const SampleSource& source,
                                     std::vector<std::int64_t> sample_ids);

// Every sample filled up to a multiple of `multiple` rows, all fields with zeros (no weight in the
// loss): the rows are a segment of their own, which nobody else sees. ErrorKind::kUnsupported for
// samples of several sequences, or fields that have not a value a row.
[[nodiscard]] SampleBatch padded_samples(SampleBatch batch, std::int64_t multiple);

}  // namespace pentatron::datasets

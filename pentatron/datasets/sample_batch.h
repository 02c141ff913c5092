// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pentatron/datasets/sample_source.h"

namespace pentatron::datasets {

// One micro-batch: samples laid side by side, name by name.
struct SampleBatch {
  struct Sequence {
    std::vector<std::int64_t> samples;     // rows where samples begin: 0 first, all rows last
    std::vector<std::int64_t> boundaries;  // rows where attention segments begin, likewise
    std::vector<std::int64_t> positions;   // [rows]
  };

  std::vector<std::int64_t> sample_ids;  // places in training order
  std::map<std::string, Sequence, std::less<>> sequences;
  std::map<std::string, FieldValues, std::less<>>
      fields;  // those of the samples, one after another
};

// Reads the samples and lays them side by side. ErrorKind::kInternal for a sample with other names
// than the first or another length than the source says, or runs that do not sum to its rows.
[[nodiscard]] SampleBatch make_batch(const SampleSource& source,
                                     std::vector<std::int64_t> sample_ids);

// Every sample filled up to a multiple of `multiple` rows, all fields with zeros (no weight in the
// loss): the rows are a segment of their own, which nobody else sees. ErrorKind::kUnsupported for
// samples of several sequences, or fields that have not a value a row.
[[nodiscard]] SampleBatch padded_samples(SampleBatch batch, std::int64_t multiple);

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pentatron::datasets {

enum class DataSplit { kTrain = 0, kValid = 1, kTest = 2 };

[[nodiscard]] std::string_view to_string(DataSplit split);

// How a corpus is cut into training, validation and test parts.
struct SplitMatrix {
  std::string text;  // as the user wrote it: part of the cache files' names
  // Fractions [begin, end) of the sequences, in the order of DataSplit; none when the part is
  // empty.
  std::array<std::optional<std::pair<double, double>>, 3> ranges;
};

// Reads `--split`, e.g. "969, 30, 1", "99,1" or "100" (all training). One to three numbers of the
// pattern [.0-9]+ separated by commas or spaces, none negative, not all zero; missing ones are 0.
// Megatron picks numbers out of any text; here anything else (signs, letters, a fourth number) is
// ErrorKind::kConfig.
[[nodiscard]] SplitMatrix parse_split(std::string_view text);

// First and one-past-last sequence of a part of a corpus of `num_sequences`: round(fraction * N),
// halves to even. An empty part gives an empty range.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> split_range(const SplitMatrix& matrix,
                                                                DataSplit split,
                                                                std::int64_t num_sequences);

struct SampleCounts {
  std::int64_t train = 0;
  std::int64_t valid = 0;
  std::int64_t test = 0;
};

struct RunLength {
  std::int64_t train_iters = 0;
  std::int64_t eval_interval = 0;       // 0: one evaluation, at the end
  std::int64_t start_eval_at_iter = 0;  // evaluations before it are left out
  std::int64_t eval_iters = 0;          // batches of one evaluation
};

// Samples a run asks for, as Megatron counts them: train_iters * batch; (train_iters /
// eval_interval + 1 - start_eval_at_iter / eval_interval, at least 1) * eval_iters * batch;
// eval_iters * batch. Negative values and products past 2^63: ErrorKind::kConfig.
[[nodiscard]] SampleCounts samples_asked(const RunLength& run, std::int64_t global_batch_size);

}  // namespace pentatron::datasets

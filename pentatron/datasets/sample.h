// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pentatron::datasets {

// Values of one field: ids and the like, or weights.
using FieldValues = std::variant<std::vector<std::int64_t>, std::vector<float>>;

// One sequence of a sample: how many rows it has, and which of them may attend to each other.
struct SampleSequence {
  std::vector<std::int64_t> positions;  // [rows]
  std::vector<std::int32_t> runs;       // lengths of the attention segments; they sum to the rows
};

// One training sample: sequences of any lengths and fields, by name, all its own. Text has the
// sequence "text" of S rows and the fields "tokens" and "labels" (the next token of each) and
// "loss_mask" (weight in the loss, 0: not counted), each of S values.
struct Sample {
  static constexpr std::string_view kText = "text";

  std::map<std::string, SampleSequence, std::less<>> sequences;
  std::map<std::string, FieldValues, std::less<>> fields;

  // A name that is not there, or of the other kind: ErrorKind::kInternal.
  [[nodiscard]] const SampleSequence& sequence(std::string_view name) const;
  [[nodiscard]] const std::vector<std::int64_t>& ids(std::string_view field) const;
  [[nodiscard]] const std::vector<float>& weights(std::string_view field) const;
  // Rows of all sequences together.
  [[nodiscard]] std::int64_t length() const;
};

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pentatron/datasets/jsonl.h"
#include "pentatron/inference/token_scorer.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::inference {

// A line to score: its tokens, and the fields that go into the output as they are.
struct ScoreLine {
  std::vector<std::int32_t> tokens;
  std::string fields;  // `"id": 7, "text": "..."`, as they stand in the line; empty: none
};

struct ScoreLineOptions {
  std::int64_t vocab_size = 0;  // of the model
  bool add_bos = false;         // the beginning-of-sequence token before `text`
};

// Reads one line: a JSON object (datasets/json_scanner.h) with "tokens", an array of ids, or else
// "text". What the result will hold ("tokens", "logprobs", "sum", "count") is not copied. A line
// that cannot be used gives the column and the reason.
[[nodiscard]] std::variant<ScoreLine, datasets::JsonlProblem> read_score_line(
    std::string_view line, const tokenizers::Tokenizer& tokenizer, const ScoreLineOptions& options);

// The "text" of such a line alone.
[[nodiscard]] std::variant<std::string, datasets::JsonlProblem> read_text_line(
    std::string_view line);

// The line of the result, without line feed: the copied fields, then tokens, logprobs (one fewer),
// their sum and count. `single_precision`: the log-probabilities were computed in fp32, and have
// that many digits; read as a float or a double they are what was computed.
[[nodiscard]] std::string write_score_line(const ScoreLine& line, const SequenceScores& scores,
                                           bool single_precision);

}  // namespace pentatron::inference

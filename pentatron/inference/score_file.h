// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/datasets/preprocess.h"
#include "pentatron/inference/document_scorer.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::inference {

struct ScoreFileOptions {
  std::vector<std::string> inputs;  // as datasets::list_inputs() reads them
  std::string output;               // "-": standard output
  bool force = false;               // replace existing files
  datasets::OnBadLine on_bad_line = datasets::OnBadLine::kStop;
  bool add_bos = false;
  std::uint64_t max_line_bytes = 256ULL << 20;
  std::string logits;  // .npy or .safetensors; empty: none
  std::uint64_t max_logits_bytes = 1ULL << 30;
};

struct ScoreFileStats {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;     // predicted
  std::int64_t bad_lines = 0;  // left out, unless they stop the run
  double sum = 0;              // of all log-probabilities
};

// Scores the lines of JSONL files (score_line.h) and writes one line each, in the same order. Rank
// 0 reads and writes, the other ranks of the model only call along (they return zeros); memory does
// not grow with the input but for the logits. The output has its name only when all of it is there.
// Blank lines are passed over.
//
// Errors: kConfig for options, existing output without `force`; kIo; kData with `file:line:column`
// for the first line that is not one JSON object with "tokens" or "text", or whose tokens do not
// fit the model.
ScoreFileStats score_files(const ScoreFileOptions& options, DocumentScorer& scorer,
                           const tokenizers::Tokenizer& tokenizer, LoadedModel& model);

}  // namespace pentatron::inference

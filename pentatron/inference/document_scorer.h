// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pentatron/inference/loaded_model.h"
#include "pentatron/inference/token_scorer.h"

namespace pentatron::inference {

// A stretch of a document that goes through the model at once: its inputs are the tokens
// [begin, begin + num_inputs), its targets the ones that follow each of them; those from
// `first_target` on count.
struct ScoreWindow {
  std::int64_t begin = 0;
  std::int64_t num_inputs = 0;
  std::int64_t first_target = 1;
};

// Windows of at most `context` inputs, one every `stride` tokens (1 to `context`), so that every
// token but the first is a counted target of exactly one: the first window that has it. From the
// second window on a counted target thus has at least context - stride + 1 tokens before it. What
// fits in one window is one, whatever the stride. Fewer than two tokens: none.
[[nodiscard]] std::vector<ScoreWindow> plan_windows(std::int64_t num_tokens, std::int64_t context,
                                                    std::int64_t stride);

struct DocumentScorerOptions {
  std::int64_t context = 0;      // inputs of a window; 0: the model's positions
  std::int64_t stride = 0;       // 0: longer documents are an error
  std::int64_t max_rows = 4096;  // as in ScorerOptions
  bool logits = false;           // not together with a stride
};

// Scores documents of any length on all ranks of a model.
class DocumentScorer final {
 public:
  // kConfig for a context beyond the model's positions or a stride beyond the context.
  DocumentScorer(LoadedModel& model, const DocumentScorerOptions& options);

  // Tokens of the longest document that needs no stride.
  [[nodiscard]] std::int64_t max_tokens() const { return context_ + (options_.logits ? 0 : 1); }
  [[nodiscard]] bool fits(std::int64_t num_tokens) const {
    return options_.stride > 0 || num_tokens <= max_tokens();
  }
  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::int64_t vocab_size() const { return model_.config.model.vocab_size; }

  // Rank 0 gives the documents, the others nothing; all ranks call together and get the scores of
  // all documents. A document that does not fit: kConfig. Else as TokenScorer::score.
  [[nodiscard]] std::vector<SequenceScores> score(
      std::span<const std::vector<std::int32_t>> documents);

  // What ranks other than 0 do until it calls score() with no document.
  void follow();

 private:
  LoadedModel& model_;
  DocumentScorerOptions options_;
  std::int64_t context_;
  TokenScorer tokens_;
};

}  // namespace pentatron::inference

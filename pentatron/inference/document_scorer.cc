// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/document_scorer.h"

#include <algorithm>
#include <cstring>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"

namespace pentatron::inference {
namespace {

using Tokens = std::vector<std::int32_t>;

std::string packed(std::span<const Tokens> documents) {
  std::string bytes;
  const auto put = [&](std::int32_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const Tokens& document : documents) {
    put(static_cast<std::int32_t>(document.size()));
    for (const std::int32_t token : document) put(token);
  }
  return bytes;
}

std::vector<Tokens> unpacked(const std::string& bytes) {
  std::vector<Tokens> documents;
  std::size_t at = 0;
  const auto take = [&] {
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  while (at < bytes.size()) {
    Tokens& document = documents.emplace_back(static_cast<std::size_t>(take()));
    for (std::int32_t& token : document) token = take();
  }
  return documents;
}

std::int64_t context_of(const LoadedModel& model, const DocumentScorerOptions& options) {
  const std::int64_t positions = model.config.model.max_position_embeddings;
  const std::int64_t context = options.context == 0 ? positions : options.context;
  PENTATRON_CHECK(context >= 1 && context <= positions, kConfig,
                  "--seq-length {}: the model has {} positions", context, positions);
  PENTATRON_CHECK(options.stride >= 0 && options.stride <= context, kConfig,
                  "a window every {} tokens would leave tokens out: windows have {} (--seq-length)",
                  options.stride, context);
  PENTATRON_CHECK(!options.logits || options.stride == 0, kConfig,
                  "logits of documents that are cut into windows are not one array: give --logits "
                  "without --stride");
  return context;
}

// Windows that wait until there are enough to fill forwards; overlapping ones copy their tokens, so
// there are never many.
class PendingWindows final {
 public:
  void add(std::size_t document, const ScoreWindow& window, std::span<const std::int32_t> tokens) {
    places_.push_back({document, window});
    tokens_.emplace_back(tokens.begin(), tokens.end());
    num_tokens_ += tokens.size();
  }

  [[nodiscard]] bool full() const {
    constexpr std::size_t kEnough = 1 << 18;
    return num_tokens_ >= kEnough;
  }

  // Puts the counted targets behind those of the documents' earlier windows.
  void score(TokenScorer& scorer, std::vector<SequenceScores>& documents) {
    std::vector<SequenceScores> scored = scorer.score(tokens_);
    for (std::size_t w = 0; w < scored.size(); ++w) {
      const auto& [document, window] = places_[w];
      SequenceScores& whole = documents[document];
      // The score of target t stands at t - begin - 1.
      const std::int64_t skip = window.first_target - window.begin - 1;
      whole.logprobs.insert(whole.logprobs.end(), scored[w].logprobs.begin() + skip,
                            scored[w].logprobs.end());
      whole.likeliest.insert(whole.likeliest.end(), scored[w].likeliest.begin() + skip,
                             scored[w].likeliest.end());
      whole.logits = std::move(scored[w].logits);
    }
    places_.clear();
    tokens_.clear();
    num_tokens_ = 0;
  }

 private:
  std::vector<std::pair<std::size_t, ScoreWindow>> places_;
  std::vector<Tokens> tokens_;
  std::size_t num_tokens_ = 0;
};

}  // namespace

std::vector<ScoreWindow> plan_windows(std::int64_t num_tokens, std::int64_t context,
                                      std::int64_t stride) {
  PENTATRON_CHECK(context >= 1 && stride >= 1 && stride <= context, kInternal,
                  "windows of {} tokens every {}", context, stride);
  std::vector<ScoreWindow> windows;
  std::int64_t next = 1;  // the first target that no window has
  for (std::int64_t begin = 0; next < num_tokens; begin += stride) {
    const std::int64_t last = std::min(num_tokens - 1, begin + context);
    windows.push_back({begin, last - begin, next});
    next = last + 1;
  }
  return windows;
}

DocumentScorer::DocumentScorer(LoadedModel& model, const DocumentScorerOptions& options)
    : model_(model),
      options_(options),
      context_(context_of(model, options)),
      tokens_(model.config, *model.stages, *model.context, model.policy, model.device,
              {.max_rows = options.max_rows, .logits = options.logits}) {}

std::vector<SequenceScores> DocumentScorer::score(std::span<const Tokens> documents) {
  comm::Group& world = model_.context->world();
  std::vector<Tokens> shared;
  if (world.size() > 1) {
    const std::string mine = world.rank() == 0 ? packed(documents) : std::string();
    shared = unpacked(comm::all_gather_bytes(world, mine).at(0));
    documents = shared;
  }
  std::vector<SequenceScores> scores(documents.size());
  PendingWindows pending;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Tokens& tokens = documents[i];
    const auto count = static_cast<std::int64_t>(tokens.size());
    PENTATRON_CHECK(fits(count), kConfig,
                    "a document of {} tokens is longer than the {} that fit; give --stride", count,
                    max_tokens());
    if (count <= max_tokens()) {
      pending.add(i, {0, count, 1}, tokens);
    } else {
      for (const ScoreWindow& window : plan_windows(count, context_, options_.stride)) {
        pending.add(i, window,
                    std::span(tokens).subspan(static_cast<std::size_t>(window.begin),
                                              static_cast<std::size_t>(window.num_inputs) + 1));
        if (pending.full()) pending.score(tokens_, scores);
      }
    }
    if (pending.full()) pending.score(tokens_, scores);
  }
  pending.score(tokens_, scores);
  return scores;
}

void DocumentScorer::follow() {
  while (!score({}).empty()) {
  }
}

}  // namespace pentatron::inference

// SPDX-License-Identifier: Apache-2.0
// Shapes: t rows of a micro-batch, v this rank's rows of the vocabulary.
#include "pentatron/inference/token_scorer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/inference/forward_pass.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::inference {
namespace {

using Tokens = std::vector<std::int32_t>;

// What crosses ranks of one row.
struct RowScore {
  double logprob = 0;
  double likeliest = 0;
};

// The lowest id with the row's largest logit over all ranks of the vocabulary, in fp64: [t].
Tensor likeliest_ids(comm::Group& ranks, const Tensor& logits_tv, const Tensor& own_max_t,
                     const Tensor& max_t, std::int64_t column_begin) {
  constexpr double kNone = 1e18;
  const std::int64_t rows = logits_tv.size(0);
  Tensor ids_t = tensor::full({rows}, kNone, kAccumulationDType, logits_tv.device());
  if (logits_tv.size(1) > 0) {
    const Tensor own_t = tensor::cast(logits_tv.argmax(1).add(column_begin), kAccumulationDType);
    ids_t = tensor::where(own_max_t.eq(max_t), own_t, ids_t).contiguous();
  }
  comm::all_reduce(ranks, ids_t, comm::ReduceOp::kMin);
  return ids_t;
}

}  // namespace

TokenScorer::TokenScorer(const config::RunConfig& config, nn::LocalStages& stages,
                         comm::ParallelContext& context, const PrecisionPolicy& policy,
                         Device device, const ScorerOptions& options)
    : config_(config),
      stages_(stages),
      context_(context),
      policy_(policy),
      device_(device),
      options_(options) {
  PENTATRON_CHECK(options.max_rows >= 1, kConfig, "{} rows a forward: at least 1",
                  options.max_rows);
}

std::int64_t TokenScorer::max_positions() const { return config_.model.max_position_embeddings; }

std::int64_t TokenScorer::rows_of(const Tokens& tokens) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  return options_.logits ? count : std::max<std::int64_t>(0, count - 1);
}

void TokenScorer::check(const Tokens& tokens) const {
  PENTATRON_CHECK(rows_of(tokens) <= max_positions(), kConfig,
                  "a sequence of {} tokens is longer than the model's {} positions", tokens.size(),
                  max_positions());
  for (const std::int32_t token : tokens) {
    PENTATRON_CHECK(token >= 0 && token < config_.model.vocab_size, kData,
                    "token {} is outside the model's vocabulary of {}", token,
                    config_.model.vocab_size);
  }
}

// The longest first, so that what is left over fills the last forwards.
std::vector<TokenScorer::MicroBatch> TokenScorer::pack(std::span<const Tokens> sequences) const {
  std::vector<std::size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sequences[a].size() > sequences[b].size();
  });
  std::vector<MicroBatch> batches;
  std::int64_t rows = 0;
  for (const std::size_t i : order) {
    const std::int64_t more = rows_of(sequences[i]);
    if (more == 0) break;
    if (batches.empty() || rows + more > options_.max_rows) {
      batches.emplace_back();
      rows = 0;
    }
    batches.back().push_back(i);
    rows += more;
  }
  return batches;
}

Batch TokenScorer::batch_of(std::span<const Tokens> sequences, const MicroBatch& members) const {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> labels;
  SequenceRows rows{.boundaries = {0}};
  for (const std::size_t i : members) {
    const Tokens& tokens = sequences[i];
    const std::int64_t count = rows_of(tokens);
    ids.insert(ids.end(), tokens.begin(), tokens.begin() + count);
    labels.insert(labels.end(), tokens.begin() + 1, tokens.end());
    labels.resize(ids.size(), 0);  // behind the last token nothing is known
    rows.boundaries.push_back(static_cast<std::int64_t>(ids.size()));
  }
  // Rows that sequence-parallel ranks can share evenly: a segment of its own.
  const auto multiple =
      static_cast<std::size_t>(config_.parallel.sequence_parallel ? context_.size("tp") : 1);
  if (const std::size_t rest = ids.size() % multiple; rest != 0) {
    ids.resize(ids.size() + multiple - rest, 0);
    labels.resize(ids.size(), 0);
    rows.boundaries.push_back(static_cast<std::int64_t>(ids.size()));
  }
  const auto num_rows = static_cast<std::int64_t>(ids.size());
  Batch batch;
  batch.sequences.emplace(Batch::kText, std::move(rows));
  batch.fields.emplace("tokens", tensor::from_vector(ids));
  batch.fields.emplace("labels", tensor::from_vector(labels));
  batch.fields.emplace("loss_mask", tensor::zeros({num_rows}, policy_.statistics));
  return to_device(std::move(batch), device_);
}

std::string TokenScorer::row_scores(const Tensor& logits, const Tensor& labels_t) {
  const tensor::NoGrad no_grad;
  const Tensor logits_tv = logits.contiguous();  // without the padding's columns
  comm::Group& ranks = context_.group("tp");
  const std::int64_t columns = logits_tv.size(1);
  const std::int64_t column_begin =
      config_.model.padded_vocab_size / context_.size("tp") * context_.coordinate("tp");
  const ops::SoftmaxPieces pieces =
      ops::softmax_pieces(logits_tv, labels_t, column_begin, columns, policy_.statistics);
  const Tensor max_t = pieces.max_t.clone();
  comm::all_reduce(ranks, max_t, comm::ReduceOp::kMax);
  Tensor sums_2t = tensor::stack({ops::sum_exp_below(pieces, max_t), pieces.target_logit_t}, 0);
  comm::all_reduce(ranks, sums_2t);
  const Tensor logprobs_t =
      sums_2t.select(0, 1).sub(max_t.add(sums_2t.select(0, 0).log())).to(kAccumulationDType);
  const Tensor ids_t = likeliest_ids(ranks, logits_tv, pieces.max_t, max_t, column_begin);
  const Tensor right_t =
      ids_t.eq(tensor::cast(labels_t, kAccumulationDType)).to(kAccumulationDType);
  if (ranks.rank() != 0) return {};
  const Tensor scores_t2 = tensor::stack({logprobs_t, right_t}, 1).cpu().contiguous();
  return {reinterpret_cast<const char*>(scores_t2.const_data_ptr<double>()),
          static_cast<std::size_t>(scores_t2.numel()) * sizeof(double)};
}

// In pieces of bounded size: every rank's columns of some rows, side by side.
void TokenScorer::gather_logits(const Tensor& logits_tv, std::int64_t first_row,
                                SequenceScores& scores, std::int64_t num_rows) {
  const tensor::NoGrad no_grad;
  constexpr std::int64_t kPieceBytes = 64LL << 20;
  const std::int64_t vocabulary = config_.model.vocab_size;
  const std::int64_t step =
      std::max<std::int64_t>(1, kPieceBytes / (vocabulary * std::int64_t{sizeof(float)}));
  scores.logits.resize(static_cast<std::size_t>(num_rows * vocabulary));
  for (std::int64_t begin = 0; begin < num_rows; begin += step) {
    const std::int64_t rows = std::min(step, num_rows - begin);
    std::string mine;
    if (logits_tv.defined()) {
      const Tensor host =
          logits_tv.narrow(0, first_row + begin, rows).cpu().to(DType::Float).contiguous();
      mine.assign(reinterpret_cast<const char*>(host.const_data_ptr<float>()),
                  static_cast<std::size_t>(host.numel()) * sizeof(float));
    }
    std::int64_t column = 0;
    for (const std::string& bytes : comm::all_gather_bytes(context_.world(), mine)) {
      const auto columns =
          static_cast<std::int64_t>(bytes.size() / sizeof(float)) / std::max<std::int64_t>(1, rows);
      // Columns of padding that is inside the softmax are left out.
      const std::int64_t kept = std::clamp<std::int64_t>(vocabulary - column, 0, columns);
      for (std::int64_t row = 0; row < rows; ++row) {
        if (kept == 0) continue;
        std::memcpy(scores.logits.data() + (begin + row) * vocabulary + column,
                    bytes.data() + row * columns * std::int64_t{sizeof(float)},
                    static_cast<std::size_t>(kept) * sizeof(float));
      }
      column += columns;
    }
  }
}

void TokenScorer::run(std::span<const Tokens> sequences, std::span<const MicroBatch> group,
                      std::vector<SequenceScores>& scores) {
  std::vector<Batch> batches;
  for (const MicroBatch& members : group) batches.push_back(batch_of(sequences, members));
  std::vector<std::string> rows(batches.size());
  Tensor logits_tv;
  const tensor::NoGrad no_grad;
  forward_pass(stages_, context_, {}, batches,
               {.policy = policy_,
                .device = device_,
                .phase = nn::Phase::kEvaluate,
                .output = nn::StageOutput::kLogits,
                .on_output = [&](int, int micro_batch, const nn::Bundle& output) {
                  const auto i = static_cast<std::size_t>(micro_batch);
                  rows[i] = row_scores(output.at(0).tensor, batches[i].labels());
                  if (options_.logits) logits_tv = output.at(0).tensor;
                }});
  std::string mine;
  for (const std::string& bytes : rows) mine += bytes;
  std::string all;
  for (const std::string& bytes : comm::all_gather_bytes(context_.world(), mine)) all += bytes;
  std::size_t row = 0;
  for (std::size_t b = 0; b < group.size(); ++b) {
    const std::size_t first_row = row;
    for (const std::size_t i : group[b]) {
      const auto num_rows = static_cast<std::size_t>(rows_of(sequences[i]));
      for (std::size_t k = 0; k + 1 < sequences[i].size(); ++k) {
        RowScore score;
        std::memcpy(&score, all.data() + (row + k) * sizeof(RowScore), sizeof(RowScore));
        PENTATRON_CHECK(std::isfinite(score.logprob), kData,
                        "the log-probability of a token is {}: are the weights damaged?",
                        score.logprob);
        scores[i].logprobs.push_back(score.logprob);
        scores[i].likeliest.push_back(score.likeliest != 0 ? 1 : 0);
      }
      if (options_.logits) {
        gather_logits(logits_tv, static_cast<std::int64_t>(row - first_row), scores[i],
                      static_cast<std::int64_t>(num_rows));
      }
      row += num_rows;
    }
    row = first_row + static_cast<std::size_t>(batches[b].num_tokens());
  }
}

std::vector<SequenceScores> TokenScorer::score(std::span<const Tokens> sequences) {
  for (const Tokens& tokens : sequences) check(tokens);
  std::vector<SequenceScores> scores(sequences.size());
  const std::vector<MicroBatch> batches = pack(sequences);
  // Enough micro-batches to keep all stages at work; with logits one, whose logits are then all
  // that is held.
  const std::size_t most = options_.logits ? 1 : static_cast<std::size_t>(4 * context_.size("pp"));
  for (std::size_t begin = 0; begin < batches.size(); begin += most) {
    const std::size_t count = std::min(most, batches.size() - begin);
    run(sequences, std::span(batches).subspan(begin, count), scores);
  }
  return scores;
}

}  // namespace pentatron::inference

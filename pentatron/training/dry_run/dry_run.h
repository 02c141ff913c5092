// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/config/parser.h"
#include "pentatron/training/dry_run/traffic.h"

// --dry-run: what a run would need on any rank of any world, found on one CPU without data, weights
// or other ranks.
namespace pentatron::training::dry_run {

// Bytes of a rank by what they are for.
struct MemoryPlan {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t main_weights = 0;  // 0: the weights are the main ones
  std::int64_t optimizer_state = 0;
  std::int64_t gathered_weights = 0;  // ZeRO-3: of two units, beside the shards
  std::int64_t unit_gradients = 0;    // ZeRO-2 and 3: of a unit and two reductions
  std::int64_t fp8_weights = 0;       // forms of the layers' weights, both orders
  std::int64_t activations = 0;       // these five at the fullest moment of the schedule
  std::int64_t logits = 0;
  std::int64_t rebuilt = 0;      // what backward makes again
  std::int64_t moving = 0;       // activations on their way to the host and back
  std::int64_t temporaries = 0;  // of the op at work
  // --optimizer-cpu-offload: main weights, state, gradients of these; activations that wait there
  std::int64_t on_host = 0;

  [[nodiscard]] std::int64_t total() const {
    return weights + gradients + main_weights + optimizer_state + gathered_weights +
           unit_gradients + fp8_weights + activations + logits + rebuilt + moving + temporaries;
  }
};

struct RankPlan {
  std::int64_t rank = 0;
  std::string place;   // "tp 1, pp 3"; empty: alone
  std::string stages;  // "embedding, layers 0-3"
  std::int64_t num_parameters = 0;
  MemoryPlan memory;
};

struct SchedulePlan {
  std::string name;
  std::int64_t num_ranks = 1;
  std::int64_t num_chunks = 1;
  std::int64_t num_micro_batches = 1;
  double bubble_share = 0;
  std::vector<double> waiting_share;  // a rank
  std::vector<int> peak_in_flight;
  std::vector<int> peak_activations;
};

struct DryRun {
  config::RunConfig config;
  std::int64_t num_parameters = 0;    // of the whole model
  std::int64_t num_frozen = 0;        // of them: not trained
  double step_flops = 0;              // of all ranks
  RankPlan asked = {};                // --rank
  RankPlan fullest = {};              // of the ranks of its data place
  std::vector<Traffic> traffic = {};  // of the rank that was asked for
  SchedulePlan schedule = {};
};

// `config` is resolved, vocabulary included. What a start would refuse: its errors; what is too
// large to be planned: kUnsupported.
[[nodiscard]] DryRun plan(const config::RunConfig& config);

// The same of a run's options: the vocabulary from --vocab-size or the tokenizer's files.
[[nodiscard]] DryRun plan_of(const config::ParsedOptions& options);

// The whole of `pretrain_gpt --dry-run`: the vocabulary from --vocab-size or the tokenizer's files,
// the text to standard output, and the file of --dry-run-json. Every kind of error comes out of it.
void run(const config::ParsedOptions& options);

}  // namespace pentatron::training::dry_run

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/faulty_backend.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/tensor/tensor.h"
#include "pentatron/training/engine.h"

// One training of a tiny model in some layout, and everything of it that must not depend on the
// layout.
namespace pentatron::parity {

enum class ModelKind { kGpt2, kLlama };

struct Layout {
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  bool sharded_optimizer = false;
  std::int64_t micro_batch_size = 1;
  std::string schedule = "1f1b";  // --pipeline-schedule
  std::int64_t chunks = 1;        // stages a pipeline rank
  std::string pipeline = {};      // --pipeline-model-parallel-layout
  std::string recompute = {};     // "uniform 2", "block 1 slices", "core_attn", "core_attn mlp"
  std::string offload = {};       // --offload-modules, blanks between them
  std::string strategy = {};  // --data-parallel-sharding-strategy; empty: as sharded_optimizer says
  bool overlap_gather = false;
  std::int64_t instances = 1;  // copies of what is sharded
  bool state_on_host = false;
  std::int64_t cp = 1;
  std::string cp_comm = "p2p";     // --cp-comm-type, blanks between the layers' types
  std::int64_t cp_inner = 1;       // ranks that exchange heads with a2a+p2p
  std::int64_t max_in_flight = 0;  // of the schedule zb-auto
  std::int64_t bucket_size = 0;    // --ddp-bucket-size; 0: one bucket holds these models

  [[nodiscard]] std::int64_t world_size() const { return tp * cp * pp * dp; }
  [[nodiscard]] std::string name() const;
  // Why the program refuses it, or empty.
  [[nodiscard]] std::string refused() const;
};

struct CaseOptions {
  ModelKind model = ModelKind::kGpt2;
  std::string optimizer = "adam";  // sgd, muon, soap
  std::string precision = "fp64";
  std::int64_t num_query_groups = 2;  // Llama
  double dropout = 0.1;               // GPT-2
  bool mixed_layers = false;          // GELU and SwiGLU layers of two widths in turn
  bool attention_dropout = true;      // GPT-2: dropout there too
  std::string form = {};  // of the layers: a word of set_form(), or blanks: as the kind's
  // qk-layernorm, qk-all-heads (Llama), qk-l2-norm, qk-clip, alibi, alibi-in-bf16, relative, yarn,
  // windows, sinks, gate, longrope, latent, latent-norms, or blanks
  std::string attention = {};
  std::vector<std::string> freeze = {};  // --freeze-parameters
  std::int64_t lora_rank = 0;
  double lora_dropout = 0;
  bool lora_dora = false;
  std::vector<std::string> lora_modules = {};  // none: all
  Device device = Device("cpu");
  int steps = 3;
  double clip_grad = 0.5;
  double adam_eps = 1e-3;
  std::int64_t vocab_divisible_by = 8;
  // What a rank with a fault reads in place of sample i of the source; empty: no rank has one.
  std::function<datasets::Sample(const datasets::SampleSource& source, std::int64_t i,
                                 const comm::ParallelContext& rank)>
      read = {};
};

struct Outcome {
  double first_loss = 0;
  double first_norm = 0;
  std::map<std::string, Tensor> first_gradients;  // whole logical tensors, fp64
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, Tensor> first_weights;  // after the first step
  std::map<std::string, Tensor> weights;        // after the last step
  std::size_t num_buckets = 0;                  // of gradients; the fewest of a rank
};

// Elements of a bucket of which every rank of the layouts here has several.
inline constexpr std::int64_t kSmallBuckets = 200;

[[nodiscard]] config::RunConfig make_config(const CaseOptions& options, const Layout& layout);

// One rank's part of a case, a step at a time, so that two of them can take turns. All ranks make
// the same calls; several runs that live at once on one backend need different names.
class RankRun final {
 public:
  // Takes the gradients of the first batch with an engine of its own, then stands before the first
  // step.
  RankRun(const CaseOptions& options, const Layout& layout, comm::Backend& backend,
          const std::string& name = "parity");
  void train_step();
  // Mean loss of the first micro-batches of the first batch, weights as they are.
  [[nodiscard]] double evaluate(std::size_t micro_batches);
  // Equal on every rank.
  [[nodiscard]] Outcome finish();
  [[nodiscard]] training::Engine& engine() { return *engine_; }

 private:
  [[nodiscard]] std::vector<Batch> batches(int step, const PrecisionPolicy& policy) const;

  Layout layout_;
  CaseOptions options_;
  config::RunConfig config_;
  comm::ParallelContext context_;
  Outcome outcome_;
  std::unique_ptr<training::Engine> engine_;
};

// All steps on this rank of any backend.
[[nodiscard]] Outcome run_rank(const CaseOptions& options, const Layout& layout,
                               comm::Backend& backend, const std::string& name = "parity");
// On rank threads of this process; with `fault`, over groups of which one gets a collective wrong.
[[nodiscard]] Outcome run_case(const CaseOptions& options, const Layout& layout,
                               const comm::testing_support::Fault* fault = nullptr);

// Empty when equal within `tolerance`: losses and norms relative; gradients and weights tolerance x
// max(largest of the tensor, 1e-3 x largest of the model). Otherwise the worst difference in words.
[[nodiscard]] std::string difference(const Outcome& reference, const Outcome& other,
                                     double tolerance);
// The same with two bounds: everything up to the weights after the first step within `first`, what
// later steps make of it within `trained`.
[[nodiscard]] std::string difference(const Outcome& reference, const Outcome& other, double first,
                                     double trained);

}  // namespace pentatron::parity

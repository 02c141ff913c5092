// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/config.h"
#include "pentatron/datasets/context_batch_plan.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/gpt_sources.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::training {

class DynamicContext;  // training/dynamic_context.h

// A loader's micro-batch as the model reads it: tensors on the CPU, weights (the loss mask) in
// policy.statistics.
[[nodiscard]] Batch to_batch(const datasets::SampleBatch& samples, const PrecisionPolicy& policy);
// The same without a copy of the fields: they stay where they are, and the loader's buffer with
// them, as long as the batch's tensors live.
[[nodiscard]] Batch to_batch(const std::shared_ptr<const datasets::SampleBatch>& samples,
                             const PrecisionPolicy& policy);

// The tokenizer of a run; sets the configuration's true and padded vocabulary by it.
[[nodiscard]] std::unique_ptr<tokenizers::Tokenizer> make_run_tokenizer(config::RunConfig& config);

// A corpus to evaluate on.
struct EvaluationSet {
  std::string name;         // empty: the only one
  std::string corpus = {};  // prefixes of its files, for messages
  const datasets::SampleSource* dataset = nullptr;
  std::int64_t iterations = 0;  // global batches of one evaluation
};

// A corpus as this rank reads it; what ranks and resumed runs must have alike.
struct DataFile {
  std::string name;      // prefix of its files, for messages
  std::string identity;  // Corpus::identity()
  std::string sampled;   // Corpus::content(): empty for made-up documents
  std::string whole;     // the same, with --data-content-hash whole; else empty
};

// Where a resumed run stands; all 0 for a new one.
struct ResumePoint {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  // The order of the data was drawn for so many; more than one where epochs were appended. Empty:
  // not known.
  std::vector<std::int64_t> train_samples_planned = {};
};

// Training samples to draw an order for: enough for the iterations that are left, whatever the
// batch size was before; the checkpoint's own numbers where they suffice, so that the order stays.
// Where they do not, one larger number, or with --append-epochs the checkpoint's and the larger
// one, for which the order only grows.
[[nodiscard]] std::vector<std::int64_t> train_samples_planned(const config::RunConfig& config,
                                                              const ResumePoint& point);

// Corpora and their parts, as --data-path or --mock-data with --split, or --train-data-path,
// --valid-data-path and --test-data-path, and the batch options ask.
class TrainingData final {
 public:
  // Not collective, but better built by one rank before the others, which then find its index
  // caches. A whole validation set below one batch, or a blend without weights that has fewer
  // training samples than the run needs: kConfig; else the errors of datasets::build_gpt_sources.
  // `caches` is told what becomes of the index caches.
  TrainingData(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer,
               const ResumePoint& point = {}, datasets::CacheLog* caches = nullptr);

  [[nodiscard]] const datasets::SampleSource* train() const { return sets_.front().train.get(); }
  // None when nothing is asked of that part; several for validation only.
  [[nodiscard]] std::vector<EvaluationSet> evaluation_sets(datasets::DataSplit split) const;
  // Hash of what decides the order and content of training samples: the source's identity and the
  // tokenizer's.
  [[nodiscard]] const std::string& identity() const { return identity_; }
  // The same without the epochs that this start appends to what the checkpoint was planned for
  // (--append-epochs); empty where it appends none.
  [[nodiscard]] const std::string& identity_before() const { return identity_before_; }
  // Numbers of training samples that the order was drawn for; the last is counts().train.
  [[nodiscard]] const std::vector<std::int64_t>& planned() const { return planned_; }
  [[nodiscard]] const datasets::SampleCounts& counts() const { return counts_; }
  // Every corpus, the training one first where there is one.
  [[nodiscard]] const std::vector<DataFile>& files() const { return files_; }

 private:
  std::vector<std::int64_t> planned_;
  datasets::SampleCounts counts_;
  std::vector<std::string> validation_names_;
  std::int64_t eval_iterations_;  // of one evaluation, in batches of eval_batch_size_
  std::int64_t eval_batch_size_;
  bool full_validation_;
  // One where a corpus is split; else one for the training corpus, then validation, then test.
  std::vector<datasets::GptSources> sets_;
  std::string identity_;
  std::string identity_before_;
  std::vector<DataFile> files_;
};

// The data-parallel rank's micro-batches, step after step, read ahead into buffers that are used
// again; for a GPU, `device`, in memory that it copies from by itself.
class BatchStream final {
 public:
  // Training data never comes back to its start within a run, and its batches may grow; evaluation
  // sets do, with the batch sizes of evaluations.
  enum class Use { kTraining, kEvaluation };

  // `dynamic_context` (Engine::dynamic_context) outlives the stream: samples are then dealt over
  // data and context ranks and come cut.
  BatchStream(const datasets::SampleSource& source, const config::RunConfig& config,
              std::int64_t dp_rank, std::int64_t consumed_samples, const PrecisionPolicy& policy,
              Use use = Use::kEvaluation, Device device = kCpu,
              const DynamicContext* dynamic_context = nullptr);
  ~BatchStream();
  // The next step's micro-batches.
  [[nodiscard]] std::vector<Batch> next();
  // Passes over the next step without reading it.
  void skip();
  // Time that next() has waited for samples so far.
  [[nodiscard]] double wait_seconds() const;

 private:
  void open(std::int64_t global_batch_size);
  void close();
  // The loader of the coming step, whose batch size may be another than the last one's.
  void prepare();
  [[nodiscard]] std::shared_ptr<const datasets::BatchPlan> make_plan(
      std::int64_t global_batch_size);
  [[nodiscard]] Batch made_of(const std::shared_ptr<const datasets::SampleBatch>& samples,
                              std::int64_t group_size) const;

  const datasets::SampleSource& source_;
  config::BatchSchedule batches_;
  std::int64_t micro_batch_size_;
  std::int64_t dp_size_;
  datasets::DataLoaderOptions options_;
  std::unique_ptr<datasets::DataLoader> loader_;
  double waited_before_ = 0;       // by loaders that are gone
  std::int64_t consumed_samples_;  // by the steps handed out
  PrecisionPolicy policy_;
  Use use_;
  const DynamicContext* dynamic_context_;  // null: none, as the next
  std::shared_ptr<const datasets::ContextBatchPlan> context_plan_;
};

}  // namespace pentatron::training

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/data.h"

#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

std::vector<std::int64_t> row_bounds(std::int64_t num_samples, std::int64_t length) {
  std::vector<std::int64_t> bounds;
  for (std::int64_t i = 0; i <= num_samples; ++i) bounds.push_back(i * length);
  return bounds;
}

datasets::GptDatasetOptions dataset_options(const config::RunConfig& config,
                                            const tokenizers::Tokenizer& tokenizer) {
  const bool mock = config.data.mock_data;
  PENTATRON_CHECK(
      mock || config.data.data_path.size() == 1, kUnsupported,
      "--data-path names {} words; one corpus prefix is supported, blends of several are planned",
      config.data.data_path.size());
  return {.data_path = mock ? std::string() : config.data.data_path.front(),
          .mock_data = mock,
          .split = config.data.split,
          .sequence_length = config.model.seq_length,
          .seed = static_cast<std::int64_t>(config.model.seed),
          .data_cache_path = config.data.data_cache_path,
          .mmap_bin_files = config.data.mmap_bin_files,
          .vocab_size = config.model.vocab_size,
          .tokenizer_vocab_size = tokenizer.vocab_size(),
          .eod = tokenizer.eod(),
          .tokenizer = tokenizer.description(),
          .masks = {.reset_position_ids = config.model.reset_position_ids,
                    .reset_attention_mask = config.model.reset_attention_mask,
                    .eod_mask_loss = config.model.eod_mask_loss}};
}

datasets::SampleCounts sample_counts(const config::RunConfig& config) {
  const config::TrainingConfig& t = config.training;
  datasets::SampleCounts counts =
      datasets::samples_asked(t.train_iters, t.eval_interval, t.eval_iters, t.global_batch_size);
  if (t.train_samples > 0) counts.train = t.train_samples;
  if (t.skip_train) counts.train = 0;
  // A part that --split leaves empty is simply not evaluated on.
  const datasets::SplitMatrix split = datasets::parse_split(config.data.split);
  if (!split.ranges[1]) counts.valid = 0;
  if (!split.ranges[2]) counts.test = 0;
  return counts;
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

std::string data_identity(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer,
                          const datasets::GptDatasets& sets) {
  nlohmann::json json;
  json["corpus"] = sets.corpus->identity();
  json["split"] = config.data.split;
  json["seq_length"] = config.model.seq_length;
  json["seed"] = config.model.seed;
  json["reset_position_ids"] = config.model.reset_position_ids;
  json["reset_attention_mask"] = config.model.reset_attention_mask;
  json["eod_mask_loss"] = config.model.eod_mask_loss;
  json["tokenizer"] = tokenizer.identity_hash();
  if (const datasets::GptDataset* train = sets.train.get()) {
    // The samples asked for decide the number of epochs and with it the order: the indices
    // themselves are compared.
    json["document_index"] = hash_bytes(train->index().document_index.bytes());
    json["shuffle_index"] = hash_bytes(train->index().shuffle_index.bytes());
  }
  return sha256_hex(json.dump());
}

}  // namespace

BatchMeta to_batch_meta(const datasets::Batch& batch, const PrecisionPolicy& policy) {
  const std::int64_t length = batch.sequence_length;
  BatchMeta meta;
  meta.num_tokens = batch.num_samples * length;
  meta.cu_seqlens = batch.cu_seqlens;
  meta.cu_samples = row_bounds(batch.num_samples, length);
  for (std::size_t i = 1; i < meta.cu_seqlens.size(); ++i) {
    meta.max_seqlen = std::max(meta.max_seqlen, meta.cu_seqlens[i] - meta.cu_seqlens[i - 1]);
  }
  meta.host_positions = batch.position_ids;
  meta.host_sample_ids.reserve(static_cast<std::size_t>(meta.num_tokens));
  meta.host_token_index.reserve(static_cast<std::size_t>(meta.num_tokens));
  for (const std::int64_t id : batch.sample_ids) {
    for (std::int64_t t = 0; t < length; ++t) {
      meta.host_sample_ids.push_back(id);
      meta.host_token_index.push_back(t);
    }
  }
  meta.tokens = tensor::from_vector(batch.tokens);
  meta.labels = tensor::from_vector(batch.labels);
  meta.loss_mask = tensor::from_vector(batch.loss_mask).to(policy.statistics);
  meta.positions = tensor::from_vector(meta.host_positions);
  meta.sample_ids = tensor::from_vector(meta.host_sample_ids);
  meta.token_index = tensor::from_vector(meta.host_token_index);
  return meta;
}

BatchMeta to_device(BatchMeta batch, Device device) {
  for (Tensor* t : {&batch.tokens, &batch.labels, &batch.loss_mask, &batch.positions,
                    &batch.sample_ids, &batch.token_index}) {
    if (t->defined()) *t = t->to(device);
  }
  if (!device.is_cpu()) {
    const std::vector<std::int32_t> lengths(batch.cu_seqlens.begin(), batch.cu_seqlens.end());
    batch.cu_seqlens_device = tensor::from_vector(lengths).to(device);
  }
  return batch;
}

TrainingData::TrainingData(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer)
    : counts_(sample_counts(config)),
      datasets_(datasets::build_gpt_datasets(dataset_options(config, tokenizer), counts_)),
      identity_(data_identity(config, tokenizer, datasets_)) {}

const datasets::GptDataset* TrainingData::part(datasets::DataSplit split) const {
  switch (split) {
    case datasets::DataSplit::kTrain:
      return datasets_.train.get();
    case datasets::DataSplit::kValid:
      return datasets_.valid.get();
    case datasets::DataSplit::kTest:
      return datasets_.test.get();
  }
  return nullptr;
}

BatchStream::BatchStream(const datasets::SampleSource& source, const config::RunConfig& config,
                         std::int64_t dp_rank, std::int64_t consumed_samples,
                         const PrecisionPolicy& policy, AtEnd at_end)
    : source_(source),
      options_{.plan = datasets::GlobalBatchPlan(config.training.global_batch_size,
                                                 config.training.micro_batch_size,
                                                 config.parallel.data_parallel_size),
               .dp_rank = dp_rank,
               .num_workers = config.data.num_workers},
      micro_batches_per_step_(options_.plan.num_micro_batches()),
      policy_(policy),
      at_end_(at_end) {
  if (at_end_ == AtEnd::kError) {
    open(consumed_samples);
    return;
  }
  // The set may have been sized for another number of evaluations than the run now asks for.
  const std::int64_t batch = config.training.global_batch_size;
  const std::int64_t whole = source.num_samples() / batch * batch;
  open(whole > 0 ? consumed_samples % whole : consumed_samples);
}

BatchStream::~BatchStream() = default;

void BatchStream::open(std::int64_t consumed_samples) {
  options_.consumed_samples = consumed_samples;
  loader_ = std::make_unique<datasets::DataLoader>(source_, options_);
}

std::vector<BatchMeta> BatchStream::next() {
  std::vector<BatchMeta> step;
  while (static_cast<std::int64_t>(step.size()) < micro_batches_per_step_) {
    const std::optional<datasets::Batch> batch = loader_->next();
    if (batch) {
      step.push_back(to_batch_meta(*batch, policy_));
    } else {
      PENTATRON_CHECK(at_end_ == AtEnd::kStartAnew, kInternal, "the data ended inside the run");
      open(0);
    }
  }
  return step;
}

}  // namespace pentatron::training

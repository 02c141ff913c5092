// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/sha256.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/validate.h"
#include "pentatron/datasets/cyclic_source.h"
#include "pentatron/datasets/fim.h"
#include "pentatron/datasets/for_each_member.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/sft_dataset.h"
#include "pentatron/tensor/host_memory.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/training/dynamic_context.h"

namespace pentatron::training {
namespace {

SequenceLayout layout_of(const datasets::SampleBatch::Sequence& sequence,
                         const std::vector<std::int64_t>& sample_ids) {
  SequenceRows rows{.boundaries = sequence.boundaries,
                    .samples = sequence.samples,
                    .positions = sequence.positions};
  rows.sample_ids.reserve(sequence.positions.size());
  for (std::size_t i = 0; i < sample_ids.size(); ++i) {
    rows.sample_ids.resize(static_cast<std::size_t>(sequence.samples[i + 1]), sample_ids[i]);
  }
  return SequenceLayout(std::move(rows));
}

template <typename ToTensor>
Batch batch_of(const datasets::SampleBatch& samples, const PrecisionPolicy& policy,
               const ToTensor& to_tensor) {
  Batch batch;
  for (const auto& [name, sequence] : samples.sequences) {
    batch.sequences.emplace(name, layout_of(sequence, samples.sample_ids));
  }
  for (const auto& [name, field] : samples.fields) {
    const bool weights = std::holds_alternative<std::pmr::vector<float>>(field);
    const Tensor values = std::visit(to_tensor, field);
    batch.fields.emplace(name, weights ? values.to(policy.statistics) : values);
  }
  return batch;
}

// The words that name corpora, from the command line or the files of options.
struct DataWords {
  std::vector<std::string> all;  // to be split; else the parts have corpora of their own
  datasets::SplitWords parts;

  [[nodiscard]] bool by_part() const {
    return !parts.train.empty() || !parts.valid.empty() || !parts.test.empty();
  }
};

DataWords data_words(const config::DataConfig& data) {
  if (!data.data_args_path.empty()) {
    return {.all = datasets::read_blend_words(data.data_args_path), .parts = {}};
  }
  if (!data.per_split_data_args_path.empty()) {
    return {.all = {}, .parts = datasets::read_split_words(data.per_split_data_args_path)};
  }
  return {.all = data.data_path,
          .parts = {.train = data.train_data_path,
                    .valid = data.valid_data_path,
                    .test = data.test_data_path}};
}

// The token that stands for nothing in a corpus; -1 where it is the end of document or of a
// sequence, too, which are to be learnt (Megatron's rule) unless `ambiguous` says otherwise.
std::int64_t padding_of(const tokenizers::Tokenizer& tokenizer, bool ambiguous) {
  const std::int64_t pad = tokenizer.pad();
  if (ambiguous) return pad;
  return pad == tokenizer.eod() || pad == tokenizer.eos().value_or(-1) ? -1 : pad;
}

// Tells what is done with padding that is the end of something, too.
void tell_padding(const config::DataConfig& data, const tokenizers::Tokenizer& tokenizer) {
  const bool ambiguous = tokenizer.pad() >= 0 && padding_of(tokenizer, false) < 0;
  if (data.allow_ambiguous_pad_tokens && !ambiguous) {
    log::warn(
        "--allow-ambiguous-pad-tokens changes nothing: the tokenizer's padding token ({}) is "
        "no other token",
        tokenizer.pad());
  } else if (data.allow_ambiguous_pad_tokens) {
    log::warn(
        "the padding token {} is the end token, too, and counts nowhere: the model will not "
        "learn to end (--allow-ambiguous-pad-tokens)",
        tokenizer.pad());
  } else if (ambiguous && !data.sft) {
    log::warn(
        "the padding token {} is the end token, too: it counts in the loss; with a padding token "
        "of its own, or --allow-ambiguous-pad-tokens, padding in the corpus is left out",
        tokenizer.pad());
  }
}

// Fill in the middle, where it is asked for.
std::shared_ptr<const datasets::FimTransform> fim_of(const config::DataConfig& data,
                                                     const tokenizers::Tokenizer& tokenizer) {
  if (!data.fim_data) return nullptr;
  return std::make_shared<const datasets::FimTransform>(
      datasets::FimOptions{.rate = data.fim_rate,
                           .spm_rate = data.fim_spm_rate,
                           .split_sample = data.fim_split_sample,
                           .fragment_rate = data.fim_fragment_rate,
                           .no_prefix = data.fim_no_prefix,
                           .prefix_token = data.fim_prefix_token,
                           .middle_token = data.fim_middle_token,
                           .suffix_token = data.fim_suffix_token,
                           .pad_token = data.fim_pad_token,
                           .eod_token = data.fim_eod_token},
      tokenizer);
}

// Positions of rotary embeddings are places in the sample, whatever --reset-position-ids says, as
// in Megatron; where documents do not see each other either, both are the same but for rounding.
// LongRoPE goes by lengths of texts, which begin at 0 where they are texts of their own.
bool resets_positions(const config::ModelConfig& model) {
  if (config::position_kind(model) == config::PositionKind::kLongRope) {
    return model.reset_attention_mask;
  }
  return model.reset_position_ids &&
         (config::position_kind(model) == config::PositionKind::kLearnedAbsolute ||
          model.reset_attention_mask);
}

datasets::GptDatasetOptions dataset_options(const config::RunConfig& config,
                                            const tokenizers::Tokenizer& tokenizer,
                                            const std::string& split) {
  return {.mock_data = config.data.mock_data,
          .split = split,
          .sequence_length = config.model.seq_length,
          .seed = static_cast<std::int64_t>(config.model.seed),
          .data_cache_path = config.data.data_cache_path,
          .mmap_bin_files = config.data.mmap_bin_files,
          .vocab_size = config.model.vocab_size,
          .tokenizer_vocab_size = tokenizer.vocab_size(),
          .eod = tokenizer.eod(),
          .tokenizer = tokenizer.description(),
          .masks = {.pad = padding_of(tokenizer, config.data.allow_ambiguous_pad_tokens),
                    .reset_position_ids = resets_positions(config.model),
                    .reset_attention_mask = config.model.reset_attention_mask,
                    .eod_mask_loss = config.model.eod_mask_loss,
                    .inter_document = config.data.dataloader_inter_document_masking},
          .fim = fim_of(config.data, tokenizer)};
}

datasets::SampleCounts sample_counts(const config::RunConfig& config, const DataWords& words,
                                     std::int64_t train_samples) {
  const config::TrainingConfig& t = config.training;
  datasets::SampleCounts counts =
      datasets::samples_asked({.train_iters = t.skip_train ? 0 : t.train_iters,
                               .eval_interval = t.eval_interval,
                               .start_eval_at_iter = t.skip_train ? 0 : t.start_eval_at_iter,
                               .eval_iters = t.eval_iters},
                              t.eval_global_batch_size);
  counts.train = t.skip_train ? 0 : train_samples;
  // A part that is not there is simply not evaluated on.
  if (words.by_part()) {
    if (words.parts.valid.empty()) counts.valid = 0;
    if (words.parts.test.empty()) counts.test = 0;
    return counts;
  }
  const datasets::SplitMatrix split = datasets::parse_split(config.data.split);
  if (!split.ranges[1]) counts.valid = 0;
  if (!split.ranges[2]) counts.test = 0;
  return counts;
}

// A part that has corpora of its own: one of them needs no weight.
datasets::Blend part_blend(const std::vector<std::string>& words, std::string_view option) {
  datasets::Blend blend = datasets::parse_blend(words, option);
  if (blend.prefixes.size() == 1) blend.weights.clear();
  return blend;
}

std::shared_ptr<const datasets::SftFormat> sft_format(const config::DataConfig& data,
                                                      const tokenizers::Tokenizer& tokenizer) {
  std::optional<tokenizers::ModelChatTemplate> own_template;
  if (data.sft_tokenizer_prompt_format == "default") {
    own_template = tokenizers::load_chat_template(
        data.tokenizer_model,
        tokenizers::given_chat_template(tokenizers::tokenizer_options(data, /*vocab_size=*/0)));
  }
  return std::make_shared<const datasets::SftFormat>(data.sft_tokenizer_prompt_format, tokenizer,
                                                     std::move(own_template));
}

std::vector<datasets::GptSources> build_sets(const config::RunConfig& config,
                                             const tokenizers::Tokenizer& tokenizer,
                                             const DataWords& words,
                                             const datasets::SampleCounts& counts,
                                             const std::vector<std::int64_t>& train_before,
                                             datasets::CacheLog* caches) {
  std::vector<datasets::GptSources> sets;
  const auto add = [&](datasets::Blend blend, const std::string& split,
                       const datasets::SampleCounts& asked) {
    datasets::MixOptions mix{.blend = std::move(blend),
                             .surplus = config.data.mid_level_dataset_surplus,
                             .full_validation = config.training.full_validation,
                             .train_before = train_before};
    if (config.data.sft) {
      const datasets::SftDataset::Options dataset{
          .split = split,
          .sequence_length = config.model.seq_length,
          .own_lengths = config.parallel.dynamic_context_parallel};
      sets.push_back(datasets::build_sft_sources(
          {.dataset = dataset, .format = sft_format(config.data, tokenizer), .mix = std::move(mix)},
          asked));
      return;
    }
    datasets::GptDatasetOptions dataset = dataset_options(config, tokenizer, split);
    dataset.cache_log = caches;
    sets.push_back(
        datasets::build_gpt_sources({.dataset = std::move(dataset), .mix = std::move(mix)}, asked));
  };
  if (!words.by_part()) {
    add(config.data.mock_data ? datasets::Blend{} : datasets::parse_blend(words.all, "--data-path"),
        config.data.split, counts);
    return sets;
  }
  if (counts.train > 0) {
    add(part_blend(words.parts.train, "--train-data-path"), "1,0,0", {.train = counts.train});
  } else {
    sets.emplace_back();
  }
  if (counts.valid > 0) {
    datasets::Blend valid = part_blend(words.parts.valid, "--valid-data-path");
    if (!config.training.multiple_validation_sets) {
      add(std::move(valid), "0,1,0", {.valid = counts.valid});
    } else {
      PENTATRON_CHECK(!valid.has_weights(), kConfig,
                      "--multiple-validation-sets evaluates each corpus of --valid-data-path by "
                      "itself: give them without weights");
      for (const std::string& prefix : valid.prefixes) {
        add({.prefixes = {prefix}}, "0,1,0", {.valid = counts.valid});
      }
    }
  }
  if (counts.test > 0) {
    add(part_blend(words.parts.test, "--test-data-path"), "0,0,1", {.test = counts.test});
  }
  return sets;
}

// --dataloader-type cyclic.
void shuffle_once_more(datasets::GptSources& set) {
  for (auto* const part : {&set.train, &set.valid, &set.test}) {
    if (*part != nullptr) *part = std::make_unique<datasets::CyclicSource>(std::move(*part));
  }
}

std::vector<std::string> validation_names(const config::RunConfig& config, const DataWords& words) {
  std::vector<std::string> names = config.data.validation_set_names;
  if (!config.training.multiple_validation_sets) return {""};
  for (std::size_t i = names.size(); i < words.parts.valid.size(); ++i) {
    names.push_back(std::to_string(i));
  }
  return names;
}

std::string corpus_names(const datasets::GptSources& set) {
  std::string names;
  for (const auto& corpus : set.corpora) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", corpus->name());
  }
  return names;
}

std::string data_identity(const datasets::SampleSource* train,
                          const tokenizers::Tokenizer& tokenizer) {
  const nlohmann::json json = {{"samples", train != nullptr ? train->identity() : ""},
                               {"tokenizer", tokenizer.identity_hash()}};
  return sha256_hex(json.dump());
}

std::vector<DataFile> data_files(const std::vector<datasets::GptSources>& sets, bool whole) {
  using datasets::ContentHash;
  std::vector<const datasets::Corpus*> corpora;
  for (const datasets::GptSources& set : sets) {
    for (const auto& corpus : set.corpora) corpora.push_back(corpus.get());
  }
  std::vector<DataFile> files(corpora.size());
  datasets::for_each_member(files.size(), [&](std::size_t i) {
    const datasets::Corpus& corpus = *corpora[i];
    files[i] = {.name = corpus.name(),
                .identity = corpus.identity(),
                .sampled = corpus.content(ContentHash::kSampled),
                .whole = whole ? corpus.content(ContentHash::kWhole) : ""};
  });
  return files;
}

}  // namespace

std::vector<std::int64_t> train_samples_planned(const config::RunConfig& config,
                                                const ResumePoint& point) {
  const config::TrainingConfig& t = config.training;
  const config::BatchSchedule batches = config::asked_batch_schedule(config);
  const std::int64_t consumed = point.consumed_samples;
  const std::int64_t left = t.train_samples > 0
                                ? batches.iterations_for(t.train_samples, consumed)
                                : std::max<std::int64_t>(t.train_iters - point.iteration, 0);
  std::int64_t needed = std::max(t.train_samples, batches.samples_after(left, consumed));
  if (t.train_samples > 0 && t.decrease_batch_size_if_needed) {
    // The last step of another size may end elsewhere beyond them.
    const config::BatchSchedule running = config::batch_schedule(config);
    needed = std::max(
        needed, running.samples_after(running.iterations_for(t.train_samples, consumed), consumed));
  }
  std::vector<std::int64_t> planned = point.train_samples_planned;
  if (!planned.empty() && needed <= planned.back()) return planned;
  if (!planned.empty() && !config.data.append_epochs) planned.pop_back();
  planned.push_back(needed);
  return planned;
}

Batch to_batch(const datasets::SampleBatch& samples, const PrecisionPolicy& policy) {
  return batch_of(samples, policy, [](const auto& values) {
    return tensor::from_vector(std::vector(values.begin(), values.end()));
  });
}

Batch to_batch(const std::shared_ptr<const datasets::SampleBatch>& samples,
               const PrecisionPolicy& policy) {
  return batch_of(*samples, policy, [&samples](const auto& values) {
    return tensor::view_of(std::span(values), samples);
  });
}

std::unique_ptr<tokenizers::Tokenizer> make_run_tokenizer(config::RunConfig& config) {
  // NullTokenizer's end token comes after the ids that --vocab-size counts.
  const std::int64_t null_vocab_size = config.data.null_tokenizer_vocab_size;
  auto tokenizer = tokenizers::make_tokenizer(
      config.data, null_vocab_size > 0 ? null_vocab_size + 1 : config.model.vocab_size);
  config::resolve_vocab(config, tokenizer->vocab_size());
  return tokenizer;
}

TrainingData::TrainingData(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer,
                           const ResumePoint& point, datasets::CacheLog* caches)
    : planned_(train_samples_planned(config, point)),
      eval_iterations_(config.training.eval_iters),
      eval_batch_size_(config.training.eval_global_batch_size),
      full_validation_(config.training.full_validation) {
  const DataWords words = data_words(config.data);
  counts_ = sample_counts(config, words, planned_.back());
  validation_names_ = validation_names(config, words);
  if (config.parallel.rank == 0) tell_padding(config.data, tokenizer);
  const std::vector<std::int64_t> before(planned_.begin(), planned_.end() - 1);
  const bool cyclic = config.data.dataloader_type == "cyclic";
  PENTATRON_CHECK(
      !cyclic || before.empty(), kConfig,
      "--dataloader-type cyclic shuffles all samples as a whole, so that --append-epochs "
      "cannot keep the order of the first {}: only --dataloader-type single can",
      before.back());
  sets_ = build_sets(config, tokenizer, words, counts_, before, caches);
  if (cyclic) std::ranges::for_each(sets_, shuffle_once_more);
  identity_ = data_identity(train(), tokenizer);
  if (planned_.size() > point.train_samples_planned.size() && !before.empty() &&
      train() != nullptr) {
    // What the checkpoint's order is, to be compared with what it says.
    const std::vector<std::int64_t> earlier(before.begin(), before.end() - 1);
    const auto sets =
        build_sets(config, tokenizer, words, {.train = before.back()}, earlier, caches);
    identity_before_ = data_identity(sets.front().train.get(), tokenizer);
  }
  files_ = data_files(sets_, config.data.data_content_hash == "whole");
  PENTATRON_CHECK(train() == nullptr || train()->num_samples() >= counts_.train, kConfig,
                  "the blend without weights holds {} training samples, each corpus once, but the "
                  "run needs {}: give weights, or lower --train-iters",
                  train()->num_samples(), counts_.train);
  for (const EvaluationSet& set : evaluation_sets(datasets::DataSplit::kValid)) {
    PENTATRON_CHECK(set.iterations > 0, kConfig,
                    "--full-validation: the validation set {}({}) has {} samples, less than one "
                    "batch of {}: lower --eval-global-batch-size, or give a longer corpus",
                    set.name.empty() ? "" : set.name + " ", set.corpus, set.dataset->num_samples(),
                    eval_batch_size_);
  }
}

std::vector<EvaluationSet> TrainingData::evaluation_sets(datasets::DataSplit split) const {
  std::vector<EvaluationSet> found;
  const bool valid = split == datasets::DataSplit::kValid;
  for (const datasets::GptSources& set : sets_) {
    const datasets::SampleSource* dataset = valid ? set.valid.get() : set.test.get();
    if (dataset == nullptr) continue;
    const bool whole = valid && full_validation_;
    found.push_back(
        {.name = valid ? validation_names_.at(found.size()) : std::string(),
         .corpus = corpus_names(set),
         .dataset = dataset,
         .iterations = whole ? dataset->num_samples() / eval_batch_size_ : eval_iterations_});
  }
  return found;
}

BatchStream::BatchStream(const datasets::SampleSource& source, const config::RunConfig& config,
                         std::int64_t dp_rank, std::int64_t consumed_samples,
                         const PrecisionPolicy& policy, Use use, Device device,
                         const DynamicContext* dynamic_context)
    : source_(source),
      batches_(use == Use::kTraining
                   ? config::batch_schedule(config)
                   : config::BatchSchedule(config.training.eval_global_batch_size)),
      micro_batch_size_(use == Use::kTraining ? config.training.micro_batch_size
                                              : config.training.eval_micro_batch_size),
      dp_size_(config.parallel.data_parallel_size),
      options_{.plan = nullptr,
               .dp_rank = dynamic_context != nullptr ? dynamic_context->rank() : dp_rank,
               .num_workers = config.data.num_workers,
               .memory = tensor::host_memory(device)},
      consumed_samples_(consumed_samples),
      policy_(policy),
      use_(use),
      dynamic_context_(dynamic_context) {
  options_.plan = make_plan(batches_.size_at(consumed_samples));
  if (use_ == Use::kTraining) return;
  // The set may have been sized for another number of evaluations than the run now asks for.
  const std::int64_t batch = batches_.size_at(0);
  const std::int64_t whole = source.num_samples() / batch * batch;
  if (whole > 0) consumed_samples_ %= whole;
}

BatchStream::~BatchStream() = default;

std::shared_ptr<const datasets::BatchPlan> BatchStream::make_plan(std::int64_t global_batch_size) {
  if (dynamic_context_ == nullptr) {
    return std::make_shared<const datasets::GlobalBatchPlan>(global_batch_size, micro_batch_size_,
                                                             dp_size_);
  }
  context_plan_ = std::make_shared<const datasets::ContextBatchPlan>(
      source_, global_batch_size, dynamic_context_->plan_options());
  return context_plan_;
}

double BatchStream::wait_seconds() const {
  return waited_before_ + (loader_ ? loader_->wait_seconds() : 0);
}

void BatchStream::close() {
  waited_before_ = wait_seconds();
  loader_.reset();
}

void BatchStream::open(std::int64_t global_batch_size) {
  close();
  options_.plan = make_plan(global_batch_size);
  options_.consumed_samples = consumed_samples_;
  loader_ = std::make_unique<datasets::DataLoader>(source_, options_);
}

void BatchStream::prepare() {
  const std::int64_t size = batches_.size_at(consumed_samples_);
  if (!loader_ || size != options_.plan->global_batch_size()) open(size);
}

Batch BatchStream::made_of(const std::shared_ptr<const datasets::SampleBatch>& samples,
                           std::int64_t group_size) const {
  return dynamic_context_ != nullptr ? dynamic_context_->share_of(*samples, group_size, policy_)
                                     : to_batch(samples, policy_);
}

std::vector<Batch> BatchStream::next() {
  prepare();
  auto samples = loader_->next();
  if (!samples) {
    PENTATRON_CHECK(use_ == Use::kEvaluation, kInternal, "the data ended inside the run");
    consumed_samples_ = 0;
    open(options_.plan->global_batch_size());
    samples = loader_->next();
    PENTATRON_CHECK(samples, kInternal, "the data has not one whole global batch");
  }
  std::vector<std::int64_t> group_sizes(samples->size(), 1);
  if (context_plan_ != nullptr) {
    group_sizes = context_plan_->group_sizes(consumed_samples_, options_.dp_rank);
  }
  consumed_samples_ += options_.plan->global_batch_size();
  std::vector<Batch> step;
  step.reserve(samples->size());
  for (std::size_t i = 0; i < samples->size(); ++i) {
    step.push_back(made_of((*samples)[i], group_sizes.at(i)));
  }
  return step;
}

void BatchStream::skip() {
  consumed_samples_ += batches_.size_at(consumed_samples_);
  close();
}

}  // namespace pentatron::training

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/session.h"

#include <cmath>
#include <optional>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/save_folder.h"
#include "pentatron/config/validate.h"
#include "pentatron/inference/model_runner.h"
#include "pentatron/tokenizers/tokenizer_files.h"
#include "pentatron/training/pretrained.h"
#include "pentatron/training/run_state.h"

namespace pentatron::training {
namespace {

config::RunConfig resolved(config::RunConfig config, const comm::Backend& backend, bool own) {
  config.parallel.world_size = backend.world_size();
  config.parallel.rank = backend.rank();
  if (own && config.training.global_batch_size == 0) {
    config::resolve(config, config::Purpose::kModel);  // the data-parallel size
    config.training.global_batch_size =
        config.training.micro_batch_size * config.parallel.data_parallel_size;
  }
  config::TrainingConfig& t = config.training;
  if (own) {
    if (t.eval_global_batch_size == 0) t.eval_global_batch_size = t.global_batch_size;
    if (t.eval_micro_batch_size == 0) t.eval_micro_batch_size = t.micro_batch_size;
    config::OptimizerConfig& o = config.optimizer;
    if (o.lr_decay_iters == 0 && o.lr_decay_samples == 0) o.lr_decay_iters = t.train_iters;
  }
  config::resolve(config, own ? config::Purpose::kModel : config::Purpose::kTrain);
  return config;
}

}  // namespace

// Members are made and end in this order and the reverse.
struct Session::Parts {
  config::RunConfig config;
  SessionOptions options;
  config::BatchSchedule batches;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> tokenizer_files;  // rank 0's
  std::unique_ptr<comm::ParallelContext> context;
  std::unique_ptr<checkpoint::FolderLock> lock;  // rank 0's
  std::unique_ptr<TrainingData> data;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<BatchStream> stream;
  std::optional<StepRates> rates;
  TrainState state;
  std::int64_t loaded_iteration = -1;
  std::int64_t saved_iteration = -1;
  bool resumed = false;

  Parts(config::RunConfig given, comm::Backend& backend, SessionOptions how)
      : config(resolved(std::move(given), backend, how.train != nullptr)),
        options(std::move(how)),
        batches(config::batch_schedule(config)) {}

  void build(comm::Backend& backend, Device device);
  void build_data(comm::Backend& backend);
  void load();
  [[nodiscard]] const datasets::SampleSource* train() const {
    return options.train != nullptr ? options.train : data->train();
  }
  [[nodiscard]] std::vector<EvaluationSet> validation() const;
  [[nodiscard]] bool is_logging_rank() const {
    return context->rank() == context->grid().world_size() - 1;
  }
};

void Session::Parts::build(comm::Backend& backend, Device device) {
  const std::string remark = use_pretrained(config.checkpoint);
  if (!remark.empty() && backend.rank() == 0) log::info("{}", remark);
  config::TrainingConfig& t = config.training;
  if (t.train_samples > 0) t.train_iters = batches.iterations_for(t.train_samples);
  if (options.train == nullptr) {
    tokenizer = make_run_tokenizer(config);
    if (!config.checkpoint.save.empty() && backend.rank() == 0) {
      tokenizer_files = tokenizers::read_tokenizer_files(
          tokenizers::tokenizer_options(config.data, config.model.vocab_size));
    }
  } else {
    PENTATRON_CHECK(options.vocab_size > 0, kConfig,
                    "a Session with samples of its own needs SessionOptions::vocab_size");
    config::resolve_vocab(config, options.vocab_size);
  }
  context = std::make_unique<comm::ParallelContext>(backend, comm::make_grids(config.parallel));
  if (!config.checkpoint.save.empty()) {
    lock = checkpoint::open_save_folder(config.checkpoint.save, context->world());
  }
  if (options.train == nullptr) build_data(backend);
  engine = std::make_unique<Engine>(config, *context, device, options.make_stage);
  if (!config.checkpoint.save.empty()) check_room_for_save(*engine);
  load();
}

// Rank 0 makes shared memory of the index caches first; the others find them.
void Session::Parts::build_data(comm::Backend& backend) {
  const ResumePoint point = resume_point(config.checkpoint);
  const auto read = [&] { data = std::make_unique<TrainingData>(config, *tokenizer, point); };
  if (backend.rank() == 0) read();
  context->world().barrier();
  if (backend.rank() != 0) read();
  check_same_data(*context, data->files());
}

void Session::Parts::load() {
  state = options.train != nullptr ? new_state(config, *options.train)
                                   : new_state(config, *data, *tokenizer);
  const LoadResult result = load_run(*engine, batches, config, state);
  rates.emplace(config);
  loaded_iteration = result.iteration;
  resumed = result.loaded && state.iteration == result.iteration;
  if (resumed && config.checkpoint.load == config.checkpoint.save) {
    saved_iteration = loaded_iteration;
  }
}

std::vector<EvaluationSet> Session::Parts::validation() const {
  if (options.train == nullptr) return data->evaluation_sets(datasets::DataSplit::kValid);
  if (options.validation == nullptr) return {};
  return {{.name = "", .dataset = options.validation, .iterations = config.training.eval_iters}};
}

Session::Session(config::RunConfig config, comm::Backend& backend, SessionOptions options,
                 Device device)
    : parts_(std::make_unique<Parts>(std::move(config), backend, std::move(options))) {
  parts_->build(backend, device);
}

Session::~Session() = default;

bool Session::done() const { return parts_->state.iteration >= config().training.train_iters; }
std::int64_t Session::iteration() const { return parts_->state.iteration; }
bool Session::resumed() const { return parts_->resumed; }

StepResult Session::step() {
  Parts& p = *parts_;
  PENTATRON_CHECK(!done(), kConfig,
                  "iteration {} of --train-iters {} is done: raise it in the configuration",
                  p.state.iteration, config().training.train_iters);
  if (!p.stream) {
    const std::int64_t needed = p.batches.samples_after(
        config().training.train_iters - p.state.iteration, p.state.consumed_train_samples);
    PENTATRON_CHECK(p.train() != nullptr && needed <= p.train()->num_samples(), kConfig,
                    "the run reads {} samples in all, the training data has {}: lower "
                    "--train-iters or the batch size",
                    needed, p.train() != nullptr ? p.train()->num_samples() : 0);
    p.stream = std::make_unique<BatchStream>(*p.train(), p.config, p.context->data_rank(),
                                             p.state.consumed_train_samples, p.engine->policy(),
                                             BatchStream::Use::kTraining, p.engine->device(),
                                             p.engine->dynamic_context());
  }
  const std::int64_t batch = p.batches.size_at(p.state.consumed_train_samples);
  if (passes_over(p.config, p.state.iteration + 1)) {
    p.stream->skip();
    count_passed_over(batch, p.state);
    return {.skipped = true};
  }
  const StepResult result = p.engine->train_step(p.stream->next(), p.rates->inputs(p.state));
  count_step(p.config, result, batch, p.state);
  check_finite(p.config, result, batch, p.state);
  check_spikes(p.config, result, p.is_logging_rank(), p.state);
  return result;
}

std::vector<SessionEvaluation> Session::evaluate() {
  Parts& p = *parts_;
  const config::TrainingConfig& t = p.config.training;
  const std::vector<EvaluationSet> sets = p.validation();
  PENTATRON_CHECK(!sets.empty() && t.eval_iters > 0, kConfig,
                  "there is nothing to evaluate on: give validation data (--split, "
                  "--valid-data-path or SessionOptions::validation) and --eval-iters");
  // A whole set is always read from its start.
  const bool goes_on = !t.full_validation;
  std::vector<SessionEvaluation> results;
  for (const EvaluationSet& set : sets) {
    const EvaluationResult sum =
        evaluate_set(*p.engine, set, goes_on ? p.state.consumed_valid_samples : 0);
    results.push_back(
        {.name = set.name, .loss = sum.loss(), .num_valid_tokens = sum.num_valid_tokens});
  }
  if (goes_on) p.state.consumed_valid_samples += t.eval_iters * t.eval_global_batch_size;
  return results;
}

void Session::save() {
  Parts& p = *parts_;
  PENTATRON_CHECK(!p.config.checkpoint.save.empty(), kConfig,
                  "save() needs a folder: set config.checkpoint.save (--save)");
  const std::int64_t made = p.engine->optimizer().num_updates();
  PENTATRON_CHECK(made == p.state.num_updates, kConfig,
                  "the engine made {} updates, this Session counted {}: train with "
                  "Session::step(), or keep a state of your own (training/checkpointing.h)",
                  made, p.state.num_updates);
  if (p.saved_iteration == p.state.iteration) return;
  save_engine(*p.engine, p.state, p.loaded_iteration, p.lock.get(), p.tokenizer_files);
  p.saved_iteration = p.state.iteration;
}

inference::Generated Session::generate(const std::vector<std::int32_t>& prompt,
                                       const inference::GenerationOptions& options) {
  Parts& p = *parts_;
  inference::ModelRunner model(p.config, p.engine->stages(), *p.context, p.engine->policy(),
                               p.engine->device());
  const std::int64_t vocab_size =
      p.tokenizer ? p.tokenizer->vocab_size() : p.config.model.vocab_size;
  inference::Generated written = inference::generate(model, vocab_size, prompt, options);
  p.engine->optimizer().settle();
  return written;
}

std::string Session::generate_text(const std::string& prompt,
                                   inference::GenerationOptions options) {
  const tokenizers::Tokenizer* text = tokenizer();
  PENTATRON_CHECK(text != nullptr, kConfig,
                  "a Session with samples of its own has no tokenizer: generate from token ids");
  options.stop_tokens.push_back(text->eod());
  return text->decode_utf8(generate(text->encode(prompt), options).tokens);
}

const config::RunConfig& Session::config() const { return parts_->config; }
const TrainState& Session::state() const { return parts_->state; }
Engine& Session::engine() { return *parts_->engine; }
comm::ParallelContext& Session::context() { return *parts_->context; }
const tokenizers::Tokenizer* Session::tokenizer() const { return parts_->tokenizer.get(); }

}  // namespace pentatron::training

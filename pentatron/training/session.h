// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/inference/generator.h"
#include "pentatron/tokenizers/tokenizer.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/train_state.h"

namespace pentatron::training {

// What a Session takes from the program instead of from the configuration.
struct SessionOptions {
  // Samples of one's own instead of `config.data`'s corpora and tokenizer. They outlive the
  // Session, and their identity() must tell other samples or another order: a resumed run is
  // compared by it.
  const datasets::SampleSource* train = nullptr;
  // The same to evaluate on; null: nothing is evaluated.
  const datasets::SampleSource* validation = nullptr;
  // Tokens of one's own samples; needed with `train`.
  std::int64_t vocab_size = 0;
  // Another stage than the model registry's (examples/custom_layer).
  StageFactory make_stage = {};
};

// The mean loss over an evaluation set.
struct SessionEvaluation {
  std::string name;  // of the set; empty: the only one
  double loss = 0;   // nats a valid token (or evaluates_means()); NaN where none is valid
  double num_valid_tokens = 0;  // over all ranks
};

// One rank of a training run under the program's own control: build, step, evaluate, save, resume,
// generate. It reads the data in order, follows the schedules and keeps the run's state, so that
// what it saves can be resumed by a Session and by `pretrain_gpt` alike, bit for bit: with the same
// configuration both end in equal checkpoints. Every rank of the world makes one with the same
// arguments and makes the same calls in the same order (all are collective). Errors are
// pentatron::Error of the kinds named.
class Session final {
 public:
  // Builds data, model and optimizer on this rank and loads the checkpoint that
  // `config.checkpoint.load` names, by the rules of --load (checkpointing.h), or the weights of
  // `pretrained_checkpoint` while there is none (pretrained.h). `config` need not be resolved; the
  // world size is the backend's. The backend outlives the Session and can move tensors of `device`.
  // Errors: kConfig for values that do not fit each other, and for own samples without vocab_size;
  // kData, kIo for the data; kCheckpoint for what cannot be resumed.
  Session(config::RunConfig config, comm::Backend& backend, SessionOptions options = {},
          Device device = kCpu);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Whether config.training.train_iters (or train_samples) are done.
  [[nodiscard]] bool done() const;
  // Iterations made, those before a resume included.
  [[nodiscard]] std::int64_t iteration() const;
  // Whether the constructor found a checkpoint and goes on with its run.
  [[nodiscard]] bool resumed() const;

  // The next iteration: forward, backward and update over the next global batch at the schedule's
  // rates. An iteration that --iterations-to-skip names reads nothing and returns `skipped`.
  // Errors: kConfig when done(), or when there are too few samples; kData for a loss or gradient
  // that is not finite (unless check_for_nan_in_loss_and_grad is off).
  StepResult step();

  // The mean loss over eval_iters batches of each validation set, going on where the last
  // evaluation ended. kConfig where there is no validation data.
  [[nodiscard]] std::vector<SessionEvaluation> evaluate();

  // Saves under config.checkpoint.save, atomically. What this iteration saved already is not saved
  // again. Errors: kConfig without `save`, and when somebody stepped the engine past this Session:
  // such a checkpoint would not say what was trained; kIo.
  void save();

  // Continues a prompt with the model as it is now; the same on every rank. The text form needs the
  // configuration's tokenizer (kConfig with own samples) and ends at the end of the document.
  // Errors: those of inference::generate().
  [[nodiscard]] inference::Generated generate(const std::vector<std::int32_t>& prompt,
                                              const inference::GenerationOptions& options = {});
  [[nodiscard]] std::string generate_text(const std::string& prompt,
                                          inference::GenerationOptions options = {});

  // Resolved.
  [[nodiscard]] const config::RunConfig& config() const;
  // What save() writes besides tensors.
  [[nodiscard]] const TrainState& state() const;
  // For gradients, parameters and what else no method above gives.
  [[nodiscard]] Engine& engine();
  [[nodiscard]] comm::ParallelContext& context();
  // Null with samples of one's own.
  [[nodiscard]] const tokenizers::Tokenizer* tokenizer() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace pentatron::training

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/functional/run_program.h"

// Tiny corpora and training runs, so that a test states a base configuration and what differs.
namespace pentatron::functional {

// Options of a program call by name. Copies are cheap enough; `with` and `without` return new ones.
class Options final {
 public:
  Options() = default;
  Options(std::initializer_list<std::pair<const std::string, std::vector<std::string>>> values)
      : values_(values) {}

  // A switch has no values.
  [[nodiscard]] Options with(const std::string& name, std::vector<std::string> values = {}) const;
  [[nodiscard]] Options with(const std::string& name, const std::string& value) const {
    return with(name, std::vector<std::string>{value});
  }
  [[nodiscard]] Options with(const std::string& name, std::int64_t value) const {
    return with(name, std::to_string(value));
  }
  [[nodiscard]] Options without(const std::string& name) const;
  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }
  [[nodiscard]] std::string value(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> words(const std::string& command) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

// One finished training run.
struct TinyRun {
  ProgramResult program;
  std::filesystem::path folder;        // of this run
  std::filesystem::path metrics_file;  // as given or made

  // One number a line of the kind ("train", "validation", "test") in the metrics file.
  [[nodiscard]] std::vector<double> series(const std::string& kind, const std::string& name) const;
  [[nodiscard]] std::vector<double> losses() const { return series("train", "lm_loss"); }
  // NaN, and a failure of the test, when there is none.
  [[nodiscard]] double first_loss() const;
  [[nodiscard]] double last_loss() const;
  // Training log lines on standard output.
  [[nodiscard]] std::vector<std::string> iteration_lines() const;
};

// A new, empty folder below the program's scratch folder, removed at its end.
[[nodiscard]] std::filesystem::path new_folder();

// `number` 0 and 1 are two different corpora of 40 documents over the tokens 0 to 62, each ended by
// 63; made once. The prefix, without .bin.
[[nodiscard]] std::string corpus(int number = 0);

// The base: 2 layers of width 16 on corpus(0), 3 steps of 2 micro-batches of 2 samples of 16
// tokens, constant learning rate, no dropout, no evaluation, no checkpoint.
[[nodiscard]] Options base();

inline constexpr double kLr = 1e-2;  // of base()
// The rate that each step of a run applied.
[[nodiscard]] std::vector<double> rates(const Options& options);
// To 1e-12, step by step.
void expect_near(const std::vector<double>& found, const std::vector<double>& expected);

// The base as a model of the Llama kind: what Hugging Face's files can hold.
[[nodiscard]] Options small_llama();
// `pentatron convert export` of a checkpoint, with more words behind.
[[nodiscard]] ProgramResult convert_export(const std::filesystem::path& load,
                                           const std::filesystem::path& hf,
                                           const std::vector<std::string>& more = {});

// Trains; a failure of the test unless the program ends well. Metrics go to <folder>/metrics.jsonl
// unless the options name another file. Equal options without --save and --load run once only.
[[nodiscard]] TinyRun train(const Options& options);
// Several at a time, in the order given.
[[nodiscard]] std::vector<TinyRun> train_all(const std::vector<Options>& options);
// The same without the demand that it ends well.
[[nodiscard]] TinyRun try_train(const Options& options, ProgramRequest request = {});

// With --save to `folder` every `interval` steps (and at the end).
[[nodiscard]] Options saving(const Options& options, const std::filesystem::path& folder,
                             int interval = 1000);
// --load and --save of one folder.
[[nodiscard]] Options resuming(const Options& options, const std::filesystem::path& folder,
                               int interval = 1000);

[[nodiscard]] std::string iteration_name(int iteration);  // iter_0000003
// Iterations that stand complete in a --save folder, ascending.
[[nodiscard]] std::vector<int> saved_iterations(const std::filesystem::path& folder);
// The inner object of manifest.json of one iteration.
[[nodiscard]] nlohmann::json manifest(const std::filesystem::path& folder, int iteration);
// Logical shapes by tensor name ("param/decoder...").
[[nodiscard]] std::map<std::string, std::vector<std::int64_t>> saved_shapes(
    const std::filesystem::path& folder, int iteration);
// `pentatron checkpoint hash`, of the newest or of one iteration.
[[nodiscard]] std::string state_hash(const std::filesystem::path& folder, int iteration = 0);

// The lines of a metrics file without what depends on the clock and the machine (seconds, rates,
// memory).
[[nodiscard]] std::vector<std::string> timeless_lines(const std::filesystem::path& file);

[[nodiscard]] std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);
[[nodiscard]] std::size_t count(const std::string& text, const std::string& part);

// Failure unless the runs' losses agree step by step to `tolerance` x the second's.
void expect_same_losses(const TinyRun& a, const TinyRun& b, double tolerance);
// Failure unless the program ended with the code and every part stands in its standard error.
void expect_refusal(const ProgramResult& result, int exit_code,
                    const std::vector<std::string>& parts);

// The run succeeds, and its line of what has no effect names `part`.
void expect_no_effect(const ProgramResult& result, const std::string& part);

}  // namespace pentatron::functional

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/monitor/record.h"

namespace pentatron::monitor {

// What the x axis counts.
enum class Axis { kIteration, kTokens, kTime };

// Which points of a run are wanted.
struct SeriesRequest {
  Axis axis = Axis::kIteration;
  std::optional<double> from = {};  // of x; without: the run's start, its end
  std::optional<double> to = {};
  std::size_t num_buckets = 500;
  double smoothing = 0;  // [0, 1)
  std::vector<std::size_t> fields = {};
  // What the asker has: of another generation or width it gets all, else what is from `since` on.
  std::int64_t generation = -1;
  double width = -1;
  double since = 0;
};

// The records of one run by columns. Training records rise in iteration: a run that was resumed
// says some again, and the later word counts. Not safe from several threads.
class RunData final {
 public:
  // Validation sets of a run; records of further ones are dropped.
  static constexpr std::size_t kMaxSets = 24;
  static constexpr std::size_t kMaxEvaluations = 20'000;  // of one set; then the older half goes
  static constexpr std::size_t kMaxSamples = 500;         // then the older half goes

  void clear();
  void add(Record record);
  // Drops half of the training records: of four in a row those of the least and the greatest loss
  // stay.
  void thin_out();

  [[nodiscard]] std::size_t num_records() const { return iteration_.size(); }
  // Grows with everything that comes.
  [[nodiscard]] std::int64_t version() const { return version_; }
  // Another one: what was sent before is void.
  [[nodiscard]] std::int64_t generation() const { return generation_; }

  // Members of a JSON object, without braces. `age_seconds`: since the file changed.
  [[nodiscard]] std::string summary_json(double age_seconds);
  // Members "generation", "version", "width", "since" (null: all), "last" (x from which on to ask
  // next), "end" (the x of the newest record), "series": {field: [x, y, x, y, ...], null for NaN},
  // "smooth": the same where smoothing is above 0, "validation": {set: [x, y, ...]}.
  [[nodiscard]] std::string series_json(const SeriesRequest& request) const;
  // Members "starts" (how many records of kRun there were) and "run" (the newest of them or null).
  [[nodiscard]] std::string about_json() const;
  // [{"iteration", "prompt", "text"}, ...]
  [[nodiscard]] std::string samples_json() const;
  static constexpr std::size_t kCsvRowsAPiece = 2000;
  [[nodiscard]] static std::string csv_head();
  // Rows from number `from` on, training records first; empty: no more.
  [[nodiscard]] std::string csv_rows(std::size_t from) const;

 private:
  struct Evaluation {
    std::int64_t iteration = 0;
    double tokens = 0;
    double seconds = 0;
    double loss = 0;
  };
  struct Sample {
    std::int64_t iteration = 0;
    std::string prompt;
    std::string text;
  };

  void add_training(const Record& record);
  void add_evaluation(const Record& record);
  void add_sample(Record record);
  void add_start(Record record);
  void resize(std::size_t size);
  void look_at_new_losses();
  [[nodiscard]] double axis_value(Axis axis, std::size_t place) const;
  [[nodiscard]] std::size_t lower_bound(Axis axis, double x) const;
  [[nodiscard]] double mean_of_newest(std::size_t field) const;

  std::vector<std::int64_t> iteration_;
  std::vector<double> tokens_;   // consumed until then
  std::vector<double> seconds_;  // of training until then
  std::array<std::vector<float>, kFields.size()> values_;
  std::map<std::string, std::vector<Evaluation>> evaluations_;
  std::vector<Sample> samples_;
  std::string start_ = {};  // JSON
  std::int64_t num_starts_ = 0;
  std::int64_t train_iters_ = 0;  // 0: not told
  double newest_time_ = 0;        // seconds since 1970
  std::int64_t version_ = 0;
  std::int64_t generation_ = 1;
  std::int64_t samples_version_ = 0;
  // The best loss of training among the first `num_seen_` records of `seen_generation_`.
  std::size_t num_seen_ = 0;
  std::int64_t seen_generation_ = 0;
  double best_loss_ = 0;
  std::int64_t best_iteration_ = -1;
};

}  // namespace pentatron::monitor

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "pentatron/datasets/corpus_reader.h"
#include "pentatron/datasets/preprocess.h"

namespace pentatron::datasets {

// The folder PREFIX.partial of an unfinished preprocess_data: state.json says how far it came, the
// other files hold what it wrote. The state is replaced in one step, after what it counts is on the
// disk; so whenever a run is killed, the next one goes on from a state that holds.
class PartialRun final {
 public:
  struct State {
    CorpusPlace place;
    PreprocessStats stats;
  };

  // Makes the folder or opens that of an earlier run and locks it. `identity` stands for everything
  // that decides the output. kConfig when another process holds the folder, or the earlier run had
  // another identity.
  PartialRun(const std::string& output_prefix, const std::string& identity);
  ~PartialRun();
  PartialRun(const PartialRun&) = delete;
  PartialRun& operator=(const PartialRun&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // Of the earlier run; none: nothing was kept yet, or what was kept is damaged (then a warning).
  [[nodiscard]] const std::optional<State>& state() const { return state_; }
  void save(const State& state) const;
  // When all is under its final name.
  void remove() const;

  // The folder of a prefix.
  [[nodiscard]] static std::filesystem::path folder_of(const std::string& output_prefix);

 private:
  void load();

  std::filesystem::path folder_;
  std::string identity_;
  int lock_ = -1;
  std::optional<State> state_;
};

}  // namespace pentatron::datasets

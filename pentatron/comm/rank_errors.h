// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::comm {

// The last word of a rank: why it ends, or what it was asked to tell before it ends.
struct LastWord {
  int rank = 0;
  bool is_error = true;    // false: a report, for standard output
  std::string label = {};  // "rank 3 (tp 1)"; empty where the rank did not come that far
  std::string text = {};
};

// Hands the last word of this process to the launcher that started it, which tells ranks' equal
// words once. False where there is no such launcher or it does not listen: then the process prints
// it itself.
[[nodiscard]] bool tell_launcher(bool is_error, std::string_view label, std::string_view text);

// The launcher's side: the words of its ranks, each text told once.
class RankErrors final {
 public:
  // Listens under a name that only the ranks' environment holds; where that fails ranks print
  // themselves.
  explicit RankErrors(int world_size);
  ~RankErrors();
  RankErrors(const RankErrors&) = delete;
  RankErrors& operator=(const RankErrors&) = delete;

  static constexpr const char* kVariable = "PENTATRON_LAUNCHER_SOCKET";
  // The variable's value for the ranks; empty: none.
  [[nodiscard]] const std::string& name() const { return name_; }

  // Takes what has come. Never waits.
  void collect();
  [[nodiscard]] bool has_word_of(int rank) const;
  // All of so many ranks have said the same.
  [[nodiscard]] bool all_alike(std::size_t num_ranks) const;
  // A text has waited for so long to be printed.
  [[nodiscard]] bool has_waited(std::chrono::milliseconds limit) const;
  // Prints the texts that have not been printed, each with its ranks. What only repeats another
  // rank's error ("rank 0 failed: ...") is left out.
  void print();

 private:
  struct Group {
    [[nodiscard]] bool has(int rank) const;
    std::vector<LastWord> words = {};  // of equal texts
    bool printed = false;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  void add(LastWord word);
  [[nodiscard]] bool repeats_another(const Group& group) const;
  [[nodiscard]] std::string label_of(const Group& group) const;

  int fd_ = -1;
  int world_size_;
  std::string name_;
  std::vector<Group> groups_;
};

// "rank 3", "ranks 0 and 2", "ranks 0 to 3 and 7".
[[nodiscard]] std::string ranks_text(std::vector<int> ranks);

// As a message between the two; nothing for what is none.
[[nodiscard]] std::string packed(const LastWord& word);
[[nodiscard]] std::optional<LastWord> unpacked(std::string_view message);

}  // namespace pentatron::comm

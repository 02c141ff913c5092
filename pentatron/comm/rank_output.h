// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace pentatron::comm {

// What the ranks of a launcher write to their stderr: passed on as it comes, and the last lines of
// each kept, so that a rank that dies can be quoted among many that write. Of a terminal nothing is
// taken over: ranks write to it themselves, and know that it is one.
class RankOutput final {
 public:
  RankOutput();
  // Passes on what is there and leaves what is still written behind.
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // The descriptor for the stderr of this rank's process, -1: its parent's. Closed by started().
  // kIo.
  [[nodiscard]] int descriptor_for(int rank);
  // The process has its own copy.
  void started(int rank);
  // The last lines of a rank that has ended, each with a line end before it and fit for a terminal;
  // nothing where none are known. Waits a moment for what is under way.
  [[nodiscard]] std::string last_lines(int rank);

 private:
  struct Source {
    int read_fd = -1;
    int write_fd = -1;
    std::deque<std::string> lines = {};  // the last one may not have ended
    bool open_line = false;
  };

  void run();
  void take(Source& source);
  static void keep(Source& source, std::string_view text);

  bool taken_over_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;  // of a source
  std::map<int, Source> sources_;  // by rank
  std::array<int, 2> wake_{-1, -1};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pentatron::comm

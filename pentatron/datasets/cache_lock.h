// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace pentatron::datasets {

// Held by the one who builds an index, so that others who want it wait instead of building it too:
// an flock(2) on a file, which is removed when it is let go. A builder that dies lets go of it.
// Works between threads and processes, on one machine and on network file systems with locks. Only
// saves work: where there can be no lock (a folder that is read-only, no locks there), nobody waits
// and the files are whole all the same, because each is written atomically.
class CacheLock final {
 public:
  // Waits for the holder, saying so; `what`: what is being built. Makes the folder where it is
  // missing.
  CacheLock(std::filesystem::path file, std::string_view what);
  ~CacheLock();
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

  [[nodiscard]] bool waited() const { return waited_; }

 private:
  // False: it was removed by its holder meanwhile, and another file may have its name.
  [[nodiscard]] bool still_there() const;

  std::filesystem::path file_;
  int fd_ = -1;
  bool waited_ = false;
};

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace pentatron {

// A new, empty folder under the system's temporary folder (TMPDIR), removed with its content at the
// end of the scope. For tests and scratch work. kIo when it cannot be made.
class TempFolder final {
 public:
  explicit TempFolder(std::string_view prefix = "pentatron");
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace pentatron

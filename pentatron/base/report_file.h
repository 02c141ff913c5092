// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace pentatron {

// A file that a run appends its reports to (metrics, TensorBoard events). The run is worth more
// than they are: when the disk is full or the device fails, a record is left out, whole, with a
// warning at the first, and the next one is tried again.
class ReportFile final {
 public:
  // Opens or makes the file and goes on at its end. `option` names it in messages. kIo when it
  // cannot be opened.
  ReportFile(std::filesystem::path path, std::string option);
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  // True when all of it was written; otherwise the file is as it was.
  bool append(std::string_view record);

 private:
  std::filesystem::path path_;
  std::string option_;
  int fd_ = -1;
  std::uint64_t left_out_ = 0;  // since the last that was written
};

}  // namespace pentatron

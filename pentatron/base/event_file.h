// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "pentatron/base/report_file.h"
#include "pentatron/base/timer.h"

namespace pentatron {

// An event file for TensorBoard: framed and checksummed records of protocol buffers. Events wait in
// memory until `queue_size` events have come or two minutes have passed, then they are written
// together; the destructor writes the rest. A file that cannot be made: kIo; events
// that cannot be written later are left out with a warning (ReportFile).
class EventFile final {
 public:
  // Makes `folder` and a new file events.out.tfevents.<seconds>.<host>.<pid>.<number> in it. Says
  // nothing about files that are there: a restart mark would void what they hold by step, and the
  // same run counts some scalars by iterations and some by samples.
  EventFile(const std::filesystem::path& folder, std::int64_t queue_size);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Stored as fp32, the format's own.
  void scalar(std::string_view tag, double value, std::int64_t step);
  void text(std::string_view tag, std::string_view text, std::int64_t step);
  void flush();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void add(const std::string& payload);

  std::filesystem::path path_;
  std::optional<ReportFile> out_;
  std::int64_t queue_size_;
  std::int64_t waiting_ = 0;
  std::string buffer_;
  Timer since_flush_;
};

// A record of such a file: length, checksum of the length, payload, checksum of the payload.
[[nodiscard]] std::string event_record(std::string_view payload);

}  // namespace pentatron

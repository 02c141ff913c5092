// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/report_file.h"

namespace pentatron::training {

// --metrics-file: one JSON object a line, numbers in full precision, flushed a line. On resume,
// lines of iterations after the loaded one are dropped first (rewritten under a temporary name), so
// that the file reads like that of an uninterrupted run; damaged lines go too, said, and the file
// as it was is kept beside it. A run from scratch keeps what is there as "<path>.1" or the next
// number that is free, and says so: the highest is the newest. A path that is no regular file:
// kConfig; one in which no line is such an object: kData; one that cannot be opened: kIo. Lines
// that cannot be written later are left out with a warning (ReportFile).
class MetricsFile final {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  // Empty path: everything is a no-op.
  MetricsFile(const std::filesystem::path& path, std::int64_t resume_iteration);
  using Texts = std::vector<std::pair<std::string, std::string>>;
  // kind: "train", "validation", "test", "sample", "run". Texts that are no UTF-8: kData.
  void write(const std::string& kind, std::int64_t iteration, const Values& values,
             const Texts& texts = {});
  // The members of an object, and "time", seconds since 1970 (run_record.h).
  void write_members(const std::string& kind, std::int64_t iteration, nlohmann::json members);

 private:
  std::filesystem::path path_;
  std::optional<ReportFile> out_;
};

// The time of day, in seconds since 1970.
[[nodiscard]] double unix_seconds();

// One series of a metrics file (of a kind and a value's name), in the file's order; values that
// were not finite are so again; damaged lines are passed over. Errors: kIo, and kData for a file in
// which no line is one of metrics.
struct MetricsPoint {
  std::int64_t iteration = 0;
  double value = 0;
};
[[nodiscard]] std::vector<MetricsPoint> read_metrics(const std::filesystem::path& path,
                                                     const std::string& kind,
                                                     const std::string& name);

}  // namespace pentatron::training

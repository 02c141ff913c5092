// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace pentatron::training {

// --metrics-file: one JSON object a line, numbers in full precision, flushed a line. On resume,
// lines of iterations after the loaded one are dropped first (rewritten under a temporary name), so
// that the file reads like that of an uninterrupted run. A path that is no regular file: kConfig;
// one with lines that are no such objects: kData; failed writes: kIo.
class MetricsFile final {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  // Empty path: everything is a no-op.
  MetricsFile(const std::filesystem::path& path, std::int64_t resume_iteration);
  using Texts = std::vector<std::pair<std::string, std::string>>;
  // kind: "train", "validation", "test", "sample". Texts that are no UTF-8: kData.
  void write(const std::string& kind, std::int64_t iteration, const Values& values,
             const Texts& texts = {});

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

// One series of a metrics file (of a kind and a value's name), in the file's order; values that
// were not finite are so again. Errors: kIo, kData.
struct MetricsPoint {
  std::int64_t iteration = 0;
  double value = 0;
};
[[nodiscard]] std::vector<MetricsPoint> read_metrics(const std::filesystem::path& path,
                                                     const std::string& kind,
                                                     const std::string& name);

}  // namespace pentatron::training

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/progress.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/training/log_format.h"

namespace pentatron::training {
namespace {

// Where the first of the unbroken row of jobs of `world_size` ranks at the end of the file began:
// its time, and the FLOPs that had been done then (of the save before it).
struct FirstStart {
  std::int64_t seconds = 0;
  double flops = 0;
};

std::optional<std::int64_t> seconds_of(const std::string& text) {
  std::tm time{};
  std::istringstream in(text);
  in >> std::get_time(&time, "%Y-%m-%d %H:%M:%S");
  if (in.fail()) return std::nullopt;
  time.tm_isdst = -1;
  return static_cast<std::int64_t>(std::mktime(&time));
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  return fields;
}

// The number behind "Name: " of a field; NaN where it is another field.
double number_of(const std::string& field, const std::string& name) {
  if (!field.starts_with(name + ": ")) return std::nan("");
  std::istringstream in(field.substr(name.size() + 2));
  double value = std::nan("");
  in >> value;
  return in.fail() ? std::nan("") : value;
}

std::optional<FirstStart> first_start(const std::filesystem::path& path, std::int64_t world_size) {
  constexpr std::uint64_t kLongest = 64ULL << 20;
  std::optional<FirstStart> first;
  double flops = 0;
  std::istringstream lines(read_text_file(path, kLongest));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 4) continue;
    if (fields[3] == "Starting job") {
      if (number_of(fields[2], "# GPUs") != static_cast<double>(world_size)) {
        first.reset();
      } else if (const auto seconds = seconds_of(fields[0]); seconds && !first) {
        first = {.seconds = *seconds, .flops = flops};
      }
    }
    for (const std::string& field : fields) {
      const double value = number_of(field, "Floating-point operations");
      if (!std::isnan(value)) flops = value;
    }
  }
  return first;
}

double teraflops(double flops, std::int64_t seconds, std::int64_t world_size) {
  return flops / (static_cast<double>(std::max<std::int64_t>(1, seconds)) * 1e12 *
                  static_cast<double>(world_size));
}

}  // namespace

ProgressFile::ProgressFile(const std::filesystem::path& folder, std::int64_t world_size,
                           double flops)
    : path_(folder / "progress.txt"),
      world_size_(world_size),
      flops_at_start_(flops),
      seconds_at_start_(std::time(nullptr)) {
  create_folders(folder);
  append("Starting job");
}

void ProgressFile::saved(std::int64_t iteration, double flops, double tokens) {
  constexpr double kBillion = 1e9;
  const std::int64_t now = std::time(nullptr);
  const FirstStart first =
      first_start(path_, world_size_)
          .value_or(FirstStart{.seconds = seconds_at_start_, .flops = flops_at_start_});
  append(fmt::format(
      "Saved checkpoint\tIteration: {}\tJob throughput: {:.1f} TFLOP/s/GPU\tCumulative throughput: "
      "{:.1f} TFLOP/s/GPU\tFloating-point operations: {:.2e}\tTokens (in billions): {:.2f}",
      iteration, teraflops(flops - flops_at_start_, now - seconds_at_start_, world_size_),
      teraflops(flops - first.flops, now - first.seconds, world_size_), flops, tokens / kBillion));
}

void ProgressFile::append(const std::string& text) {
  std::ofstream out(path_, std::ios::app);
  out << current_datetime() << "\tJob ID: " << env_string("SLURM_JOB_ID").value_or("")
      << "\t# GPUs: " << world_size_ << "\t" << text << "\n"
      << std::flush;
  PENTATRON_CHECK(out.good(), kIo, "--log-progress: {} cannot be written", path_.string());
}

}  // namespace pentatron::training

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/trace_summary.h"

namespace pentatron::apps {
namespace {

std::vector<std::filesystem::path> trace_files(const std::filesystem::path& given) {
  if (!std::filesystem::is_directory(given)) return {given};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(given)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  PENTATRON_CHECK(!files.empty(), kConfig,
                  "{} holds no rank-*.json: give the folder of a run's --trace, or one file of it",
                  given.string());
  return files;
}

}  // namespace

int profile(const Words& words) {
  const Flags flags("profile",
                    "Where the time of a traced run (pretrain_gpt --trace TRACE) went, rank by "
                    "rank. TRACE: the folder, or one file of it; Perfetto (ui.perfetto.dev) shows "
                    "the files themselves.",
                    {"TRACE"}, {{"--top", "N", "lines of each table", "15"}}, words);
  if (flags.help()) return 0;
  const auto most = static_cast<std::size_t>(flags.integer("--top", 1));
  for (const std::filesystem::path& path : trace_files(flags.positional(0))) {
    const TraceFile file = read_trace(path);
    log::print_line(format_trace_summary(file, summarize_trace(file), most));
  }
  return 0;
}

}  // namespace pentatron::apps

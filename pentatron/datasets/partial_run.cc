// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/partial_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kStateFile = "state.json";
constexpr int kVersion = 1;

json to_json(const PartialRun::State& state, const std::string& identity) {
  const PreprocessStats& stats = state.stats;
  json keys = json::array();
  for (const PreprocessStats::Key& key : stats.keys) {
    keys.push_back({{"output_prefix", key.output_prefix},
                    {"documents", key.documents},
                    {"empty_documents", key.empty_documents},
                    {"sequences", key.sequences},
                    {"tokens", key.tokens}});
  }
  return {{"version", kVersion},
          {"identity", identity},
          {"file", state.place.file},
          {"bytes", state.place.in_file.bytes},
          {"line", state.place.in_file.line},
          {"stats",
           {{"keys", keys},
            {"lines", stats.lines},
            {"blank_lines", stats.blank_lines},
            {"bad_lines", stats.bad_lines},
            {"bytes", stats.bytes}}}};
}

PartialRun::State from_json(const json& value) {
  PartialRun::State state;
  value.at("file").get_to(state.place.file);
  value.at("bytes").get_to(state.place.in_file.bytes);
  value.at("line").get_to(state.place.in_file.line);
  const json& stats = value.at("stats");
  stats.at("lines").get_to(state.stats.lines);
  stats.at("blank_lines").get_to(state.stats.blank_lines);
  stats.at("bad_lines").get_to(state.stats.bad_lines);
  stats.at("bytes").get_to(state.stats.bytes);
  for (const json& each : stats.at("keys")) {
    PreprocessStats::Key key;
    each.at("output_prefix").get_to(key.output_prefix);
    each.at("documents").get_to(key.documents);
    each.at("empty_documents").get_to(key.empty_documents);
    each.at("sequences").get_to(key.sequences);
    each.at("tokens").get_to(key.tokens);
    state.stats.keys.push_back(std::move(key));
  }
  return state;
}

}  // namespace

fs::path PartialRun::folder_of(const std::string& output_prefix) {
  return output_prefix + ".partial";
}

PartialRun::PartialRun(const std::string& output_prefix, const std::string& identity)
    : folder_(folder_of(output_prefix)), identity_(identity) {
  create_folders(folder_);
  lock_ = ::open((folder_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  PENTATRON_CHECK(lock_ >= 0, kIo, "cannot open {}: {}", (folder_ / "lock").string(),
                  std::generic_category().message(errno));
  try {
    PENTATRON_CHECK(::flock(lock_, LOCK_EX | LOCK_NB) == 0, kConfig,
                    "another preprocess_data is writing to {}: wait for it or choose another "
                    "--output-prefix",
                    folder_.string());
    load();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

PartialRun::~PartialRun() { ::close(lock_); }

void PartialRun::load() {
  const fs::path file = folder_ / kStateFile;
  if (!fs::exists(file)) return;
  std::string earlier;
  try {
    const json value = parse_json(read_text_file(file), file.string());
    value.at("identity").get_to(earlier);
    if (value.at("version").get<int>() == kVersion) state_ = from_json(value);
  } catch (const std::exception& error) {
    log::warn("{}: starting again, the state of the earlier run is damaged: {}", folder_.string(),
              error.what());
    state_.reset();
    return;
  }
  PENTATRON_CHECK(earlier == identity_, kConfig,
                  "{} holds an unfinished run of other options, another tokenizer or other input: "
                  "repeat that run's command, or remove the folder",
                  folder_.string());
}

void PartialRun::save(const State& state) const {
  write_file_atomically(folder_ / kStateFile, dump_json(to_json(state, identity_), 2));
}

void PartialRun::remove() const { remove_tree(folder_); }

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"

// Processes that launch() starts as ranks of a test, and what they say of themselves: rankN.txt in
// a folder. Only tests include it.
namespace pentatron::comm::testing_support {

using Clock = std::chrono::steady_clock;

// Place and address from the launcher's variables; the time-out in ms from a variable, else a
// minute. Options: GlooOptions or NcclOptions.
template <typename Options>
Options launched_options(const char* timeout_variable) {
  Options options;
  options.rank = env_int("RANK").value();
  options.world_size = env_int("WORLD_SIZE").value();
  options.master_addr = env_string("MASTER_ADDR").value();
  options.master_port = env_int("MASTER_PORT").value();
  options.timeout = std::chrono::milliseconds(env_int(timeout_variable).value_or(60'000));
  return options;
}

inline std::unique_ptr<Group> group_of_all(Backend& backend) {
  std::vector<std::int64_t> everyone;
  for (std::int64_t rank = 0; rank < backend.world_size(); ++rank) everyone.push_back(rank);
  return backend.make_group(everyone, "all");
}

inline std::string result_file(const std::string& folder, std::int64_t rank) {
  return fmt::format("{}/rank{}.txt", folder, rank);
}

inline void write_result(const std::string& folder, std::int64_t rank, const std::string& text) {
  std::ofstream(result_file(folder, rank)) << text << '\n';
}

// The error, and how long it took to come.
inline void write_error(const std::string& folder, std::int64_t rank, const Error& error,
                        Clock::time_point begin) {
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  write_result(
      folder, rank,
      fmt::format("{} after {:.2f} s: {}", to_string(error.kind()), seconds.count(), error.what()));
}

// Empty where the rank has written nothing.
inline std::string result_of(const std::string& folder, std::int64_t rank) {
  std::ifstream file(result_file(folder, rank));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::vector<std::string> results_of(const std::string& folder, int ranks) {
  std::vector<std::string> results;
  for (int rank = 0; rank < ranks; ++rank) results.push_back(result_of(folder, rank));
  return results;
}

// Of what write_error wrote.
inline double seconds_of(const std::string& result) {
  return std::stod(result.substr(result.find("after ") + 6));
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace pentatron::comm::testing_support

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/job_environment.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"

namespace pentatron::comm {
namespace {

std::string bytes_of_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return bytes;
}

}  // namespace

std::string job_token() {
  if (auto given = env_string(kJobTokenVariable); given && !given->empty()) return *given;
  if (const auto run = env_string("TORCHELASTIC_RUN_ID")) {
    return fmt::format("torchrun {} {}", *run,
                       env_string("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  if (const auto job = env_string("SLURM_JOB_ID")) {
    // mpirun's own first node is in no step, its others are.
    const bool mpirun = env_string("OMPI_COMM_WORLD_SIZE").has_value();
    return fmt::format("slurm {} {}", *job, mpirun ? "" : env_string("SLURM_STEP_ID").value_or(""));
  }
  return {};
}

bool all_ranks_here(std::int64_t world_size) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    if (const auto here = env_int(name)) return *here >= world_size;
  }
  return env_string("SLURM_PROCID") && env_int("SLURM_NNODES") == 1;
}

std::string random_token() {
  std::array<unsigned char, 16> bytes;
  PENTATRON_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                  kIo, "no random numbers for the job's token: {}", std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string keyed_digest(std::string_view key, std::string_view message) {
  constexpr std::size_t kBlockBytes = 64;
  std::string block(key.size() > kBlockBytes ? bytes_of_hex(sha256_hex(key)) : std::string(key));
  block.resize(kBlockBytes, '\0');
  std::string inner = block;
  std::string outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5C);
  return sha256_hex(outer + bytes_of_hex(sha256_hex(inner.append(message))));
}

}  // namespace pentatron::comm

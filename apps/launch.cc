// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/launch.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "apps/command.h"
#include "pentatron/base/error.h"

namespace pentatron::apps {
namespace {

constexpr std::string_view kUsage =
    "Starts N processes of this machine with torchrun's variables and ends them together. The "
    "first word without an option "
    "name begins the command: one of pentatron's own (pretrain_gpt ...), or any program.";

// A subcommand's name stands for this very program.
std::vector<std::string> full_command(std::vector<std::string> command) {
  const auto own = commands();
  if (std::any_of(own.begin(), own.end(),
                  [&](const Command& c) { return c.name == command.front(); })) {
    command.insert(command.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  }
  return command;
}

}  // namespace

int launch(const Words& words) {
  // Options of launch itself end where the command begins.
  static constexpr std::array kNames{"--nproc-per-node", "--nnodes",      "--node-rank",
                                     "--master-addr",    "--master-port", "--grace-seconds"};
  Words own;
  std::size_t i = 0;
  while (i < words.size() && words[i].starts_with("--")) {
    const bool takes_value = std::find(kNames.begin(), kNames.end(), words[i]) != kNames.end();
    own.push_back(words[i++]);
    if (takes_value && i < words.size()) own.push_back(words[i++]);
  }
  const Flags flags(
      "launch", std::string(kUsage), {},
      {{"--nproc-per-node", "N", "processes to start here", "1"},
       {"--nnodes", "N", "machines; start this command on each", "1"},
       {"--node-rank", "N", "number of this machine", "0"},
       {"--master-addr", "HOST", "address of machine 0", "127.0.0.1"},
       {"--master-port", "PORT", "port of the rendezvous; 0: a free one (one machine only)", "0"},
       {"--grace-seconds", "N", "from SIGTERM to SIGKILL when a rank has failed", "10"}},
      own);
  if (flags.help()) return 0;
  PENTATRON_CHECK(i < words.size(), kConfig,
                  "pentatron launch: no command to start; see pentatron launch --help");
  return comm::launch({.nproc_per_node = static_cast<int>(flags.integer("--nproc-per-node", 1)),
                       .nnodes = static_cast<int>(flags.integer("--nnodes", 1)),
                       .node_rank = static_cast<int>(flags.integer("--node-rank", 0)),
                       .master_addr = flags.text("--master-addr"),
                       .master_port = static_cast<int>(flags.integer("--master-port", 0)),
                       .grace_seconds = static_cast<int>(flags.integer("--grace-seconds", 0)),
                       .command = full_command(
                           Words(words.begin() + static_cast<std::ptrdiff_t>(i), words.end()))});
}

}  // namespace pentatron::apps

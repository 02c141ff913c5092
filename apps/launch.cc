// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/launch.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <thread>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/tensor/device.h"

namespace pentatron::apps {
namespace {

constexpr std::string_view kUsage =
    "Starts N processes of this machine with torchrun's variables and ends them together. The "
    "first word without an option name begins the command: one of pentatron's own (pretrain_gpt "
    "...), or any program. torchrun's spellings work (--nproc_per_node, --standalone, "
    "--rdzv_endpoint HOST:PORT, ...); a rank that fails ends the job, nothing is restarted.";

const std::vector<Flags::Spec>& specs() {
  static const std::vector<Flags::Spec> kAll{
      {"--nproc-per-node", "N", "processes to start here; gpu: one a GPU, cpu: one a core", "1"},
      {"--nnodes", "N", "machines; start this command on each", "1"},
      {"--node-rank", "N", "number of this machine", "0"},
      {"--master-addr", "HOST", "address of machine 0", "127.0.0.1"},
      {"--master-port", "PORT", "port of the rendezvous; 0: a free one (one machine only)", "0"},
      {"--standalone", "", "one machine, a free port"},
      {"--rdzv-endpoint", "HOST[:PORT]", "--master-addr and --master-port in one word"},
      {"--rdzv-backend", "NAME", "static or c10d: both mean the above", "static"},
      {"--rdzv-id", "TEXT", "several machines: a secret of the job, the same on all"},
      {"--max-restarts", "N", "torchrun's; only 0, nothing is restarted", "0"},
      {"--no-python", "", "torchrun's; always so"},
      {"--grace-seconds", "N",
       "from SIGTERM to SIGKILL; without it 1 when a rank has failed, 10 when the launcher was "
       "asked "
       "to stop"}};
  return kAll;
}

// A subcommand's name stands for this very program.
std::vector<std::string> full_command(std::vector<std::string> command) {
  const auto own = commands();
  if (std::any_of(own.begin(), own.end(),
                  [&](const Command& c) { return c.name == command.front(); })) {
    command.insert(command.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  }
  return command;
}

// --nproc_per_node=2 as --nproc-per-node=2; the value is left alone.
std::string with_dashes(std::string word) {
  const std::size_t end = std::min(word.find('='), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return word;
}

int processes_here(const Flags& flags) {
  const std::string text = flags.text("--nproc-per-node");
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (text == "cpu") return cores;
  if (text == "gpu" || text == "auto") {
    const auto gpus = tensor::load_cuda_library().available ? tensor::gpus().size() : 0;
    PENTATRON_CHECK(gpus > 0 || text == "auto", kConfig,
                    "--nproc-per-node gpu: there is no GPU on this machine; give a number");
    return gpus > 0 ? static_cast<int>(gpus) : cores;
  }
  constexpr std::int64_t kMaxProcesses = 4096;
  const std::int64_t number = flags.integer("--nproc-per-node", 1);
  PENTATRON_CHECK(number <= kMaxProcesses, kConfig, "--nproc-per-node {}: more than {}", number,
                  kMaxProcesses);
  return static_cast<int>(number);
}

// torchrun writes a range of machines as "2:2".
int machines(const Flags& flags) {
  const std::string text = flags.text("--nnodes");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return static_cast<int>(flags.integer("--nnodes", 1));
  int number = 0;
  const char* const end = text.data() + colon;
  const auto parsed = std::from_chars(text.data(), end, number);
  PENTATRON_CHECK(parsed.ec == std::errc() && parsed.ptr == end && number >= 1 &&
                      text.substr(0, colon) == text.substr(colon + 1),
                  kConfig,
                  "--nnodes {}: a job of a changing number of machines is not supported; "
                  "give one number",
                  text);
  return number;
}

// The endpoint's host and port go before --master-addr and --master-port, as torchrun has it.
void set_rendezvous(const Flags& flags, comm::LaunchOptions& options) {
  const std::string backend = flags.text("--rdzv-backend");
  PENTATRON_CHECK(backend == "static" || backend == "c10d", kConfig,
                  "--rdzv-backend {}: static and c10d are known", backend);
  PENTATRON_CHECK(flags.integer("--max-restarts", 0) == 0, kConfig,
                  "--max-restarts {}: a job is not restarted here; let what starts it do that, a "
                  "run resumes with --load",
                  flags.text("--max-restarts"));
  options.job_token = flags.text("--rdzv-id");
  const std::string endpoint = flags.text("--rdzv-endpoint");
  if (flags.has("--standalone")) {
    PENTATRON_CHECK(options.nnodes == 1, kConfig, "--standalone and --nnodes {} exclude each other",
                    options.nnodes);
    options.master_addr = "127.0.0.1";
    options.master_port = 0;
    return;
  }
  if (endpoint.empty()) return;
  // "[::1]:29500", "host:29500", "host"; more than one colon without brackets is an address.
  const std::size_t colon = endpoint.rfind(':');
  const bool has_port =
      colon != std::string::npos && (endpoint.find(':') == colon || endpoint[colon - 1] == ']');
  options.master_addr = has_port ? endpoint.substr(0, colon) : endpoint;
  if (!has_port) return;
  const char* const begin = endpoint.data() + colon + 1;
  const char* const end = endpoint.data() + endpoint.size();
  const auto parsed = std::from_chars(begin, end, options.master_port);
  PENTATRON_CHECK(parsed.ec == std::errc() && parsed.ptr == end && !options.master_addr.empty(),
                  kConfig, "--rdzv-endpoint {}: expected HOST:PORT", endpoint);
}

}  // namespace

int launch(const Words& words) {
  // Options of launch itself end where the command begins.
  Words own;
  std::size_t i = 0;
  while (i < words.size() && words[i].starts_with("--")) {
    const std::string word = with_dashes(words[i++]);
    own.push_back(word);
    const bool takes_value = std::ranges::any_of(
        specs(), [&](const Flags::Spec& s) { return s.name == word && !s.value.empty(); });
    if (takes_value && i < words.size()) own.push_back(words[i++]);
  }
  const Flags flags("launch", std::string(kUsage), {}, specs(), own);
  if (flags.help()) return 0;
  PENTATRON_CHECK(i < words.size(), kConfig,
                  "pentatron launch: no command to start; see pentatron launch --help");
  comm::LaunchOptions options{
      .nproc_per_node = processes_here(flags),
      .nnodes = machines(flags),
      .node_rank = static_cast<int>(flags.integer("--node-rank", 0)),
      .master_addr = flags.text("--master-addr"),
      .master_port = static_cast<int>(flags.integer("--master-port", 0)),
      .grace_seconds = {},
      .command = full_command(Words(words.begin() + static_cast<std::ptrdiff_t>(i), words.end()))};
  if (flags.has("--grace-seconds")) {
    options.grace_seconds = static_cast<int>(flags.integer("--grace-seconds", 0));
  }
  set_rendezvous(flags, options);
  return comm::launch(options);
}

}  // namespace pentatron::apps

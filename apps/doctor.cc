// SPDX-License-Identifier: Apache-2.0
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "apps/command.h"
#include "apps/monitor_library.h"
#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/log.h"
#include "pentatron/config/config.h"
#include "pentatron/config/launch_env.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/vector_set.h"

namespace pentatron::apps {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string what;
  std::string remedy = {};  // empty: fine
  bool serious = false;     // something will not work
};

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

Finding processor() {
  const tensor::VectorSet set = tensor::vector_set();
  const std::string text =
      fmt::format("processor: {} threads, {}", std::thread::hardware_concurrency(),
                  set == tensor::VectorSet::kAvx512 ? "AVX-512"
                  : set == tensor::VectorSet::kAvx2 ? "AVX2"
                                                    : "no AVX2");
  if (set != tensor::VectorSet::kNone) return {text};
  return {text, "training on this processor is slow: use one with AVX2, or a GPU"};
}

Finding memory() {
  const double total = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return {fmt::format("memory: {:.1f} GiB", total / kGiB)};
}

Finding descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("open files at once: {}", limit.rlim_cur);
  if (limit.rlim_cur >= 1024) return {text};
  return {text, "blends and launches need more: ulimit -n 4096", limit.rlim_cur < 128};
}

// NCCL's ranks on one machine meet there.
Finding shared_memory(bool gpus) {
  std::error_code code;
  const fs::space_info space = fs::space("/dev/shm", code);
  if (code) return {"shared memory: no /dev/shm", "mount one (containers: --shm-size 1g)", gpus};
  const std::string text =
      fmt::format("shared memory: {:.1f} GiB free", static_cast<double>(space.available) / kGiB);
  if (space.available >= (std::uintmax_t{256} << 20)) return {text};
  return {text, "several GPUs of one machine may need more: start containers with --shm-size 1g"};
}

Finding folder() {
  std::error_code code;
  const fs::path here = fs::current_path(code);
  if (code) return {"current folder: it is gone", "change into one that exists", true};
  const fs::space_info space = fs::space(here, code);
  std::string text = fmt::format("current folder: {}, {:.1f} GiB free", here.string(),
                                 static_cast<double>(space.available) / kGiB);
  if (access(here.c_str(), W_OK) != 0) text += ", read-only";
  if (space.available >= (std::uintmax_t{1} << 30)) return {text};
  return {text, "checkpoints need room: see what --save predicts, or another disk"};
}

Finding loopback() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool open = socket >= 0 &&
                    bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                    listen(socket, 1) == 0;
  const std::string why = open ? "" : std::strerror(errno);
  if (socket >= 0) close(socket);
  if (open) return {"local sockets: work"};
  return {"local sockets: " + why, "`launch` needs 127.0.0.1; allow sockets in this sandbox", true};
}

Finding own_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(name, nullptr, nullptr, &found);
  if (found != nullptr) freeaddrinfo(found);
  const std::string text = fmt::format("name of this machine: {}", name);
  if (code == 0) return {text};
  return {text + ", not known to the resolver",
          "for runs on several machines give MASTER_ADDR as an address, or mend /etc/hosts"};
}

// What this process would take itself for in a run of several.
Finding launcher() {
  config::Problems problems;
  const config::LaunchEnv env = config::read_launch_env(config::launcher_variables(), problems);
  if (!problems.empty()) {
    return {fmt::format("launcher: {}", fmt::join(problems.lines(), "; ")),
            "unset these variables, or start ranks with pentatron launch, torchrun, srun or mpirun",
            true};
  }
  if (!env.rank) return {"launcher: none, so this is a run's only process"};
  return {fmt::format("launcher: rank {} of {} by {}, ranks meet at {}:{}", *env.rank,
                      env.world_size.value_or(1), env.source, env.master_addr.value_or(""),
                      env.master_port.value_or(config::ParallelConfig{}.master_port))};
}

Finding graphics() {
  const tensor::CudaLibrary& library = tensor::load_cuda_library();
  if (library.available) {
    return {fmt::format("GPUs: {} (`pentatron --version` lists them)", library.gpus)};
  }
  const bool present = fs::exists("/dev/nvidia0");
  return {"GPUs: not in use: " + library.reason,
          present ? "there is a GPU: build with `make cuda`, and see that driver and libraries fit"
                  : "",
          present};
}

Finding monitor() {
  try {
    (void)load_monitor_library();
    return {"plot and watch: can be loaded"};
  } catch (const Error& error) {
    return {
        fmt::format("plot and watch: {}", error.what()),
        "build or install libpentatron_monitor.so too (its packages: tools/setup/packages.txt)"};
  }
}

}  // namespace

int doctor(const Words& words) {
  const Flags flags("doctor",
                    "Looks at this machine: what was found, what is missing, and what to do. Ends "
                    "with 8 when something will not work.",
                    {}, {}, words);
  if (flags.help()) return 0;
  bool serious = false;
  const Finding gpus = graphics();
  for (const Finding& finding :
       {processor(), memory(), gpus, shared_memory(tensor::load_cuda_library().gpus > 1),
        descriptors(), folder(), loopback(), own_name(), launcher(), monitor()}) {
    const char* const mark = finding.remedy.empty() ? "ok  " : (finding.serious ? "FAIL" : "note");
    log::print_line(fmt::format("{}  {}", mark, finding.what));
    if (!finding.remedy.empty()) log::print_line("      " + finding.remedy);
    serious |= finding.serious;
  }
  return serious ? exit_code(ErrorKind::kUnsupported) : 0;
}

}  // namespace pentatron::apps

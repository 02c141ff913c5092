// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/mapping_faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "pentatron/base/error.h"

namespace pentatron {
namespace {

constexpr std::size_t kMaxMaps = 4096;
constexpr std::size_t kMaxName = 400;  // bytes; of longer paths the end is kept

// A handler may read a slot at any moment: `begin` is set last and cleared first.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};  // 0: free
  std::atomic<std::size_t> size{0};
  std::array<char, kMaxName> name{};
};

struct State {
  std::mutex mutex;  // of who writes to slots
  std::array<Slot, kMaxMaps> slots;
};

// Never destroyed: maps may be read while the process ends. In zeroed memory that no page of is
// touched before it is used.
State& state() {
  static State* const kState = new State;
  return *kState;
}

// One message, in one write, of whichever thread comes first: several readers may run into the same
// hole. Ends the process.
[[noreturn]] void tell(const char* name) {
  constexpr std::string_view kBefore = "\nerror: ";
  constexpr std::string_view kAfter =
      " was cut short, or can no longer be read, while it was in use. What was saved before is "
      "kept; restore the file and start again with --load.\n";
  static std::atomic_flag told;
  while (told.test_and_set()) ::pause();
  std::array<char, kBefore.size() + kMaxName + kAfter.size()> text;
  std::size_t size = 0;
  for (const std::string_view part :
       {kBefore, std::string_view(name, ::strnlen(name, kMaxName)), kAfter}) {
    std::memcpy(text.data() + size, part.data(), part.size());
    size += part.size();
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), size);
  ::_exit(exit_code(ErrorKind::kData));
}

// System calls and lock-free atomics only.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Slot& slot : state().slots) {
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address - begin >= slot.size.load()) continue;
    tell(slot.name.data());
  }
  // Not ours: again, with the default, once this returns.
  ::signal(signal, SIG_DFL);
}

}  // namespace

void remember_mapping(const void* begin, std::size_t size, std::string_view path) {
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.mutex);
  for (Slot& slot : now.slots) {
    if (slot.begin.load() != 0) continue;
    path.remove_prefix(path.size() - std::min(path.size(), kMaxName - 1));
    slot.name.fill('\0');
    for (std::size_t i = 0; i < path.size(); ++i) {
      const auto byte = static_cast<unsigned char>(path[i]);
      slot.name[i] = byte < 0x20 || byte == 0x7f ? '?' : path[i];
    }
    slot.size.store(size);
    slot.begin.store(reinterpret_cast<std::uintptr_t>(begin), std::memory_order_release);
    return;
  }
}

void forget_mapping(const void* begin) {
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.mutex);
  for (Slot& slot : now.slots) {
    if (slot.begin.load() != reinterpret_cast<std::uintptr_t>(begin)) continue;
    slot.begin.store(0);
    return;
  }
}

void tell_mapping_faults() {
  (void)state();  // a handler must not be the one that makes it
  struct sigaction action {};
  action.sa_sigaction = &on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace pentatron

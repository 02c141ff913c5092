// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/memory.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/thread_memory.h"

namespace pentatron::tensor {
namespace {

// Counters of the whole process: the library has one CPU allocator for all threads.
struct Counters {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<std::int64_t> largest{0};
  std::atomic<std::int64_t> blocks{0};
  // Blocks of one size; 0: none is watched.
  std::atomic<std::int64_t> watched_size{0};
  std::atomic<std::int64_t> watched{0};
  std::atomic<std::int64_t> watched_peak{0};
};

// Allocated minus freed by one thread, and the most of that.
struct ThreadCounters {
  std::int64_t current = 0;
  std::int64_t peak = 0;
};
ThreadCounters& counters_of_thread() {
  thread_local ThreadCounters counters;
  return counters;
}

void raise_to(std::atomic<std::int64_t>& value, std::int64_t candidate) {
  std::int64_t seen = value.load(std::memory_order_relaxed);
  while (seen < candidate && !value.compare_exchange_weak(seen, candidate)) {
  }
}

// Blocks that tensors gave back, by size: the next step asks for the same sizes again, and the C
// library would cut, join and clear them each time.
class BlockCache final {
 public:
  static constexpr std::size_t kClassBytes = 64;

  static std::size_t rounded(std::size_t bytes) {
    return (bytes + kClassBytes - 1) / kClassBytes * kClassBytes;
  }
  // Null: none of this size is here.
  void* take(std::size_t rounded_bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = blocks_.find(rounded_bytes);
    if (found == blocks_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    held_bytes_ -= rounded_bytes;
    return block;
  }
  // False: the block is not kept.
  bool put(void* block, std::size_t bytes) {
    if (bytes > kLargestBlock) return false;
    const std::scoped_lock lock(mutex_);
    if (held_bytes_ + bytes > kMaxBytes) return false;
    blocks_[bytes].push_back(block);
    held_bytes_ += bytes;
    return true;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kMaxBytes = 0;  // a use after the end is to be seen
#else
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
#endif
  static constexpr std::size_t kLargestBlock = std::size_t{4} << 20;

  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<void*>> blocks_;
  std::size_t held_bytes_ = 0;
};

// Sits in front of the library's CPU allocator from the first meter on and counts the bytes asked
// for, rounded up to 64. What the C library hands out beyond these depends on the heap's history,
// so it would not be the same twice. The size stands in the last bytes of the C library's block,
// behind the tensor's: the deleter needs no table of sizes.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {
    inner_deleter() = inner->raw_deleter();
  }

  static Counters& counters() {
    static Counters counters;
    return counters;
  }
  // Never destroyed: tensors of other threads may end after main.
  static BlockCache& cache() {
    static auto* cache = new BlockCache;
    return *cache;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return inner_->allocate(bytes);
    const std::size_t rounded = BlockCache::rounded(bytes);
    if (void* block = cache().take(rounded); block != nullptr) {
      count(static_cast<std::int64_t>(rounded));
      return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DataPtr data = inner_->allocate(rounded + sizeof(std::size_t));
    ask_for_huge_pages(data.get(), rounded);
    const bool swapped = data.compare_exchange_deleter(inner_deleter(), &release);
    PENTATRON_CHECK(swapped, kInternal, "the CPU allocator uses an unexpected deleter");
    std::memcpy(size_of(data.get()), &rounded, sizeof(rounded));
    count(static_cast<std::int64_t>(rounded));
    return data;
  }
  // Large blocks on large pages, where the kernel leaves that to the program: fewer faults on first
  // use and fewer misses of the address cache (3 % of a step of GPT-2 124M). A hint; a kernel
  // without large pages ignores it.
  static void ask_for_huge_pages(void* block, std::size_t bytes) {
    if (bytes < kHugePagesFrom) return;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t before = reinterpret_cast<std::uintptr_t>(block) % page;
    const std::size_t skipped = before == 0 ? 0 : page - before;
    madvise(static_cast<char*>(block) + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
  }
  static void count(std::int64_t held) {
    Counters& c = counters();
    ThreadCounters& own = counters_of_thread();
    own.current += held;
    own.peak = std::max(own.peak, own.current);
    raise_to(c.peak, c.current.fetch_add(held) + held);
    raise_to(c.largest, held);
    c.blocks.fetch_add(1, std::memory_order_relaxed);
    if (is_watched(held)) raise_to(c.watched_peak, c.watched.fetch_add(1) + 1);
  }
  static bool is_watched(std::int64_t held) {
    return held == counters().watched_size.load(std::memory_order_relaxed);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

 private:
  static c10::DeleterFnPtr& inner_deleter() {
    static c10::DeleterFnPtr deleter = nullptr;
    return deleter;
  }
  // Where the size of a block stands.
  static char* size_of(void* block) {
    return static_cast<char*>(block) + malloc_usable_size(block) - sizeof(std::size_t);
  }
  static void release(void* pointer) {
    if (pointer != nullptr) {
      std::size_t bytes = 0;
      std::memcpy(&bytes, size_of(pointer), sizeof(bytes));
      counters_of_thread().current -= static_cast<std::int64_t>(bytes);
      counters().current.fetch_sub(static_cast<std::int64_t>(bytes));
      counters().blocks.fetch_sub(1, std::memory_order_relaxed);
      if (is_watched(static_cast<std::int64_t>(bytes))) counters().watched.fetch_sub(1);
      if (cache().put(pointer, bytes)) return;
    }
    inner_deleter()(pointer);
  }

  static constexpr std::size_t kHugePagesFrom = std::size_t{4} << 20;

  c10::Allocator* inner_;
};

std::atomic<bool>& meter_alive() {
  static std::atomic<bool> alive{false};
  return alive;
}

void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Lives until the process ends, as the tensors that it served may.
    static auto* allocator = new CountingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(allocator, /*priority=*/1);
  });
}

}  // namespace

MemoryMeter::MemoryMeter() {
  PENTATRON_CHECK(!meter_alive().exchange(true), kInternal, "two memory meters live at once");
  install_once();
  CountingAllocator::counters().current.store(0);
  CountingAllocator::counters().largest.store(0);
  CountingAllocator::counters().blocks.store(0);
  reset_peak();
}

MemoryMeter::~MemoryMeter() {
  CountingAllocator::counters().watched_size.store(0);
  meter_alive().store(false);
}

void MemoryMeter::watch_blocks_of(std::int64_t bytes) {
  Counters& c = CountingAllocator::counters();
  c.watched_size.store(
      static_cast<std::int64_t>(BlockCache::rounded(static_cast<std::size_t>(bytes))));
  c.watched.store(0);
  c.watched_peak.store(0);
}

std::int64_t MemoryMeter::peak_watched_blocks() const {
  return CountingAllocator::counters().watched_peak;
}

void MemoryMeter::reset_peak() {
  Counters& c = CountingAllocator::counters();
  c.peak.store(c.current.load());
}

std::int64_t MemoryMeter::current_bytes() const { return CountingAllocator::counters().current; }
std::int64_t MemoryMeter::peak_bytes() const { return CountingAllocator::counters().peak; }
std::int64_t MemoryMeter::largest_allocation() const {
  return CountingAllocator::counters().largest;
}

std::int64_t held_bytes(Device device) {
  return device.is_cuda() ? device_memory(device).allocated : counters_of_thread().current;
}

void reset_thread_peak() { counters_of_thread().peak = counters_of_thread().current; }
std::int64_t thread_peak_bytes() { return counters_of_thread().peak; }

std::int64_t MemoryMeter::num_blocks() const { return CountingAllocator::counters().blocks; }

std::int64_t peak_resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/status", "r"),
                                                             &std::fclose);
  PENTATRON_CHECK(file != nullptr, kIo, "cannot read /proc/self/status");
  constexpr std::int64_t kKilo = 1024;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), file.get()) != nullptr) {
    long long kilobytes = 0;
    if (std::sscanf(line.data(), "VmHWM: %lld kB", &kilobytes) == 1) return kilobytes * kKilo;
  }
  return resident_bytes();  // a kernel that keeps no high-water mark
}

std::int64_t resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                             &std::fclose);
  long long total = 0, resident = 0;
  PENTATRON_CHECK(file != nullptr && std::fscanf(file.get(), "%lld %lld", &total, &resident) == 2,
                  kIo, "cannot read /proc/self/statm");
  return static_cast<std::int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

}  // namespace pentatron::tensor

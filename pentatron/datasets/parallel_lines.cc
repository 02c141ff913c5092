// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/parallel_lines.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/datasets/byte_source.h"
#include "pentatron/datasets/line_reader.h"

namespace pentatron::datasets {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxWorkers = 1024;

// Whole lines, line feeds included.
struct Block {
  std::string bytes;
  std::vector<std::size_t> ends;
};

Block block_of(const LineBatch& batch, const std::string& name) {
  Block block;
  block.bytes.reserve(batch.bytes.size() + batch.lines.size());
  std::uint64_t whole = 0;
  for (const LineBatch::Line& line : batch.lines) {
    PENTATRON_CHECK(!line.too_long, kData, "{}:{}: a line of more than 256 MiB", name, line.number);
    block.bytes += batch.text(line);
    block.bytes += '\n';
    block.ends.push_back(block.bytes.size());
    whole += line.size + 1;
  }
  // The last line of a file may have none.
  if (whole > batch.bytes_read) {
    block.bytes.pop_back();
    --block.ends.back();
  }
  return block;
}

class Workers final {
 public:
  Workers(std::int64_t count, const std::function<void(std::size_t, std::string_view)>& take)
      : take_(take), room_(2 * static_cast<std::size_t>(count)) {
    try {
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        threads_.emplace_back([this, i] { work(i); });
      }
    } catch (...) {
      end();
      throw;
    }
  }
  ~Workers() { end(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Waits for room. False once a worker has failed.
  bool give(Block block) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return blocks_.size() < room_ || failure_; });
    if (failure_) return false;
    blocks_.push_back(std::move(block));
    lock.unlock();
    changed_.notify_all();
    return true;
  }
  // Waits for the rest, and throws what a worker has met.
  void finish() {
    end();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work(std::size_t worker) {
    for (;;) {
      Block block;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !blocks_.empty() || ended_ || failure_; });
        if (blocks_.empty() || failure_) return;
        block = std::move(blocks_.front());
        blocks_.pop_front();
      }
      changed_.notify_all();
      try {
        std::size_t begin = 0;
        for (const std::size_t line_end : block.ends) {
          take_(worker, std::string_view(block.bytes).substr(begin, line_end - begin));
          begin = line_end;
        }
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        changed_.notify_all();
        return;
      }
    }
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const std::function<void(std::size_t, std::string_view)>& take_;
  std::size_t room_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> blocks_;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace

void read_lines_in_parallel(
    std::span<const std::string> paths, const ParallelLinesOptions& options,
    const std::function<void(std::size_t worker, std::string_view line)>& take) {
  PENTATRON_CHECK(options.workers >= 1 && options.workers <= kMaxWorkers, kConfig,
                  "--workers {}: expected 1 to {}", options.workers, kMaxWorkers);
  Workers workers(options.workers, take);
  std::int64_t lines = 0;
  std::uint64_t bytes = 0;
  for (const std::string& path : paths) {
    LineReader reader(open_byte_source(path), {});
    for (;;) {
      const LineBatch batch = reader.next_batch(kBlockBytes);
      if (batch.lines.empty()) break;
      lines += std::ssize(batch.lines);
      bytes += batch.bytes_read;
      if (!workers.give(block_of(batch, path))) return workers.finish();
      if (options.progress) options.progress(lines, bytes);
    }
  }
  workers.finish();
}

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

// CPU threads of one rank. Work is cut so that results never depend on the number of threads.
namespace pentatron::tensor {

[[nodiscard]] int num_threads();
void set_num_threads(int threads);
// Whether work started here stays on the calling thread: it is the only one, or is itself part of
// parallel work.
[[nodiscard]] bool runs_alone();

// Calls body(from, to) over a partition of [begin, end); ranges are at least `grain` long but for
// the last.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

// Hands out task numbers 0 .. count - 1, each once, to whichever worker asks next.
class TaskSource final {
 public:
  explicit TaskSource(std::int64_t count) : count_(count) {}
  // False when nothing is left.
  [[nodiscard]] bool next(std::int64_t& task) {
    task = next_.fetch_add(1, std::memory_order_relaxed);
    return task < count_;
  }

 private:
  std::int64_t count_;
  std::atomic<std::int64_t> next_{0};
};

// Runs `worker` once a thread (at most `count` threads); each draws its tasks from the source. For
// independent tasks of uneven size that need scratch memory.
void parallel_tasks(std::int64_t count, const std::function<void(TaskSource&)>& worker);

}  // namespace pentatron::tensor

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentatron {

// A fixed number of threads that run tasks in the order of submission. Workers carry the log label
// of the thread that made the pool. The destructor runs what was submitted, then joins.
class ThreadPool final {
 public:
  // num_threads >= 1, else ErrorKind::kInternal.
  explicit ThreadPool(std::size_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::size_t num_threads() const { return threads_.size(); }

  // Result or exception of the task come out of the future.
  template <typename F>
  [[nodiscard]] std::future<std::invoke_result_t<std::decay_t<F>>> submit(F&& function) {
    using Result = std::invoke_result_t<std::decay_t<F>>;
    // std::function wants copies, a packaged task has none.
    auto task = std::make_shared<std::packaged_task<Result()>>(std::forward<F>(function));
    std::future<Result> future = task->get_future();
    push([task = std::move(task)] { (*task)(); });
    return future;
  }

  // Runs function(0) to function(count - 1), the calling thread among the workers, and returns when
  // all have ended; calls may nest. Every index runs even if one throws; of several exceptions the
  // one with the lowest index is rethrown. Which thread runs which index is not determined.
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& function);

 private:
  void push(std::function<void()> task);
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pentatron

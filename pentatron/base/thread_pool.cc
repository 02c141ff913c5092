// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"

namespace pentatron {
namespace {

// One parallel_for, shared with helpers that may start after it has returned; such a helper finds
// no index left and never touches `function`.
struct Loop {
  const std::function<void(std::size_t)>* function = nullptr;
  std::size_t count = 0;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::condition_variable all_ended;
  std::size_t num_ended = 0;
  std::size_t failed_index = 0;
  std::exception_ptr error;

  void run() {
    for (;;) {
      const std::size_t index = next.fetch_add(1);
      if (index >= count) return;
      std::exception_ptr caught;
      try {
        (*function)(index);
      } catch (...) {
        caught = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(mutex);
      if (caught && (!error || index < failed_index)) {
        error = caught;
        failed_index = index;
      }
      if (++num_ended == count) all_ended.notify_all();
    }
  }
};

}  // namespace

ThreadPool::ThreadPool(std::size_t num_threads) {
  PENTATRON_CHECK(num_threads >= 1, kInternal, "a thread pool needs at least one thread");
  threads_.reserve(num_threads);
  for (std::size_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this, label = log::thread_label()] {
      log::set_thread_label(label);
      work();
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::push(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void ThreadPool::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void ThreadPool::parallel_for(std::size_t count, const std::function<void(std::size_t)>& function) {
  if (count == 0) return;
  const auto loop = std::make_shared<Loop>();
  loop->function = &function;
  loop->count = count;
  // The caller works too, so that a nested call ends even when every worker is busy.
  const std::size_t num_helpers = std::min(count - 1, threads_.size());
  for (std::size_t i = 0; i < num_helpers; ++i) push([loop] { loop->run(); });
  loop->run();
  std::unique_lock<std::mutex> lock(loop->mutex);
  loop->all_ended.wait(lock, [&] { return loop->num_ended == count; });
  if (loop->error) std::rethrow_exception(std::exchange(loop->error, nullptr));
}

}  // namespace pentatron

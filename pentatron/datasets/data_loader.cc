// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/data_loader.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/timer.h"
#include "pentatron/datasets/batch_pool.h"

namespace pentatron::datasets {

// Threads walk over the micro-batches of all steps in order, numbered from 0, and put results into
// a map that next() empties in order; numbers run at most `prefetch` ahead.
class DataLoader::Impl final {
 public:
  Impl(const SampleSource& source, DataLoaderOptions options)
      : source_(source),
        options_(std::move(options)),
        pool_(std::make_shared<BatchPool>(options_.memory)) {
    const std::int64_t total = options_.total_samples.value_or(source.num_samples());
    PENTATRON_CHECK(options_.plan != nullptr, kInternal, "a data loader without a plan");
    const BatchPlan& plan = *options_.plan;
    PENTATRON_CHECK(total <= source.num_samples(), kConfig,
                    "{} samples are asked for, the dataset has {}", total, source.num_samples());
    PENTATRON_CHECK(options_.consumed_samples >= 0 && options_.num_workers >= 0 &&
                        options_.prefetch >= 0 && options_.num_workers <= 1024,
                    kConfig, "consumed samples {}, --num-workers {} (0 to 1024)",
                    options_.consumed_samples, options_.num_workers);
    PENTATRON_CHECK(options_.dp_rank >= 0 && options_.dp_rank < plan.dp_size(), kInternal,
                    "dp rank {} of {}", options_.dp_rank, plan.dp_size());
    num_steps_ = plan.num_steps(total, options_.consumed_samples);
    PENTATRON_CHECK(
        num_steps_ > 0, kConfig,
        "no whole global batch is left: {} samples, {} consumed, --global-batch-size {}", total,
        options_.consumed_samples, plan.global_batch_size());
    ahead_ = options_.prefetch > 0 ? options_.prefetch : 2 * options_.num_workers;
    try {
      for (std::int64_t i = 0; i < options_.num_workers; ++i) {
        threads_.emplace_back([this] { work(); });
        ::pthread_setname_np(threads_.back().native_handle(), "data_loader");
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::optional<std::vector<std::shared_ptr<const SampleBatch>>> next() {
    if (failure_) std::rethrow_exception(failure_);
    if (steps_out_ == num_steps_) return std::nullopt;
    std::vector<std::shared_ptr<const SampleBatch>> step;
    for (const std::vector<std::int64_t>& ids : ids_of_step(steps_out_)) {
      Result result = threads_.empty() ? read_now(ids) : wait_for_next();
      if (result.exception) {
        failure_ = result.exception;
        std::rethrow_exception(failure_);
      }
      step.push_back(pool_->hand_out(std::move(result.batch)));
    }
    ++steps_out_;
    return step;
  }

  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }
  [[nodiscard]] std::int64_t consumed_samples() const {
    return options_.consumed_samples + steps_out_ * options_.plan->global_batch_size();
  }
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }

 private:
  struct Result {
    std::unique_ptr<SampleBatch> batch;
    std::exception_ptr exception;
  };

  [[nodiscard]] std::vector<std::vector<std::int64_t>> ids_of_step(std::int64_t step) const {
    return options_.plan->micro_batches(
        options_.consumed_samples + step * options_.plan->global_batch_size(), options_.dp_rank);
  }

  Result read(std::vector<std::int64_t> ids) const {
    Result result;
    try {
      result.batch = pool_->take();
      result.batch->read(source_, std::move(ids));
    } catch (...) {
      result.exception = std::current_exception();
    }
    return result;
  }

  // In next(), where there are no threads: all of it is waiting.
  Result read_now(std::vector<std::int64_t> ids) {
    const Timer timer;
    Result result = read(std::move(ids));
    wait_seconds_ += timer.seconds();
    return result;
  }

  Result wait_for_next() {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return done_.contains(next_out_); };
    if (!there()) {
      const Timer timer;
      ready_.wait(lock, there);
      wait_seconds_ += timer.seconds();
    }
    Result result = std::move(done_.extract(next_out_).mapped());
    ++next_out_;
    lock.unlock();
    room_.notify_one();
    return result;
  }

  // The samples of the next micro-batch to be read; none at the end.
  std::optional<std::vector<std::int64_t>> take_ids() {
    while (coming_.empty() && steps_in_ < num_steps_) {
      try {
        for (std::vector<std::int64_t>& ids : ids_of_step(steps_in_)) {
          coming_.push_back(std::move(ids));
        }
      } catch (...) {
        return std::nullopt;  // next() asks the plan too and meets the error in its place
      }
      ++steps_in_;
    }
    if (coming_.empty()) return std::nullopt;
    std::vector<std::int64_t> ids = std::move(coming_.front());
    coming_.pop_front();
    return ids;
  }

  void work() {
    for (;;) {
      std::optional<std::vector<std::int64_t>> ids;
      std::int64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return stopped_ || ended_ || next_in_ - next_out_ < ahead_; });
        if (!stopped_ && !ended_) ids = take_ids();
        if (!ids) {
          ended_ = true;
          room_.notify_all();
          return;
        }
        number = next_in_++;
      }
      Result result = read(std::move(*ids));
      bool awaited = false;
      {
        const std::lock_guard lock(mutex_);
        done_.emplace(number, std::move(result));
        awaited = number == next_out_;
      }
      if (awaited) ready_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const SampleSource& source_;
  DataLoaderOptions options_;
  std::int64_t num_steps_ = 0;
  std::int64_t steps_out_ = 0;
  std::int64_t ahead_ = 0;  // how far next_in_ may run before next_out_
  std::shared_ptr<BatchPool> pool_;
  double wait_seconds_ = 0;
  std::exception_ptr failure_;  // of the consumer's thread
  std::mutex mutex_;
  std::condition_variable room_;   // there may be something to read, for the threads
  std::condition_variable ready_;  // the next batch is there, for the one consumer
  std::map<std::int64_t, Result> done_;
  std::int64_t steps_in_ = 0;                     // whose micro-batches stand in coming_
  std::deque<std::vector<std::int64_t>> coming_;  // samples of micro-batches not yet begun
  std::int64_t next_in_ = 0;
  std::int64_t next_out_ = 0;
  bool ended_ = false;  // nothing is left to be begun
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(const SampleSource& source, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(source, std::move(options))) {}
DataLoader::~DataLoader() = default;
std::optional<std::vector<std::shared_ptr<const SampleBatch>>> DataLoader::next() {
  return impl_->next();
}
std::int64_t DataLoader::num_steps() const { return impl_->num_steps(); }
std::int64_t DataLoader::consumed_samples() const { return impl_->consumed_samples(); }
double DataLoader::wait_seconds() const { return impl_->wait_seconds(); }

}  // namespace pentatron::datasets

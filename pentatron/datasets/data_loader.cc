// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/data_loader.h"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

Batch make_batch(const SampleSource& source, std::vector<std::int64_t> sample_ids) {
  Batch batch;
  batch.num_samples = static_cast<std::int64_t>(sample_ids.size());
  batch.sequence_length = source.sequence_length();
  const auto rows = static_cast<std::size_t>(batch.num_samples * batch.sequence_length);
  batch.tokens.reserve(rows);
  batch.labels.reserve(rows);
  batch.loss_mask.reserve(rows);
  batch.position_ids.reserve(rows);
  batch.cu_seqlens.push_back(0);
  for (const std::int64_t id : sample_ids) {
    const GptSample sample = source.sample(id);
    batch.tokens.insert(batch.tokens.end(), sample.tokens.begin(), sample.tokens.end());
    batch.labels.insert(batch.labels.end(), sample.labels.begin(), sample.labels.end());
    batch.loss_mask.insert(batch.loss_mask.end(), sample.loss_mask.begin(), sample.loss_mask.end());
    batch.position_ids.insert(batch.position_ids.end(), sample.position_ids.begin(),
                              sample.position_ids.end());
    for (const std::int32_t length : sample.attention_lengths) {
      batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
    }
  }
  PENTATRON_CHECK(
      batch.tokens.size() == rows && batch.cu_seqlens.back() == static_cast<std::int64_t>(rows),
      kInternal, "samples of another length than {}", batch.sequence_length);
  batch.sample_ids = std::move(sample_ids);
  return batch;
}

// Micro-batches are numbered from 0 over all steps of the loader. Threads take numbers in order and
// put results into a map that next() empties in order; numbers run at most `prefetch` ahead.
class DataLoader::Impl final {
 public:
  Impl(const SampleSource& source, DataLoaderOptions options) : source_(source), options_(options) {
    const std::int64_t total = options_.total_samples.value_or(source.num_samples());
    const GlobalBatchPlan& plan = options_.plan;
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
    end_ = num_steps_ * plan.num_micro_batches();
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

  std::optional<Batch> next() {
    if (failure_) std::rethrow_exception(failure_);
    if (next_out_ == end_) return std::nullopt;
    Result result;
    if (threads_.empty()) {
      result = read(next_out_);
      ++next_out_;
    } else {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return done_.contains(next_out_); });
      result = std::move(done_.extract(next_out_).mapped());
      ++next_out_;
      lock.unlock();
      room_.notify_one();
    }
    if (result.exception) {
      failure_ = result.exception;
      std::rethrow_exception(failure_);
    }
    return std::move(result.batch);
  }

  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }
  [[nodiscard]] std::int64_t consumed_samples() const {
    const std::int64_t per_step = options_.plan.num_micro_batches();
    const std::int64_t begun = (next_out_ + per_step - 1) / per_step;
    return options_.consumed_samples + begun * options_.plan.global_batch_size();
  }

 private:
  struct Result {
    Batch batch;
    std::exception_ptr exception;
  };

  Result read(std::int64_t number) const {
    Result result;
    try {
      const GlobalBatchPlan& plan = options_.plan;
      const std::int64_t per_step = plan.num_micro_batches();
      const std::int64_t consumed =
          options_.consumed_samples + number / per_step * plan.global_batch_size();
      result.batch =
          make_batch(source_, plan.sample_ids(consumed, options_.dp_rank, number % per_step));
    } catch (...) {
      result.exception = std::current_exception();
    }
    return result;
  }

  void work() {
    for (;;) {
      std::int64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock,
                   [&] { return stopped_ || next_in_ == end_ || next_in_ - next_out_ < ahead_; });
        if (stopped_ || next_in_ == end_) return;
        number = next_in_++;
      }
      Result result = read(number);
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
  std::int64_t end_ = 0;        // micro-batches in all
  std::int64_t ahead_ = 0;      // how far next_in_ may run before next_out_
  std::exception_ptr failure_;  // of the consumer's thread
  std::mutex mutex_;
  std::condition_variable room_;   // there may be something to read, for the threads
  std::condition_variable ready_;  // the next batch is there, for the one consumer
  std::map<std::int64_t, Result> done_;
  std::int64_t next_in_ = 0;
  std::int64_t next_out_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(const SampleSource& source, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(source, options)) {}
DataLoader::~DataLoader() = default;
std::optional<Batch> DataLoader::next() { return impl_->next(); }
std::int64_t DataLoader::num_steps() const { return impl_->num_steps(); }
std::int64_t DataLoader::consumed_samples() const { return impl_->consumed_samples(); }

}  // namespace pentatron::datasets

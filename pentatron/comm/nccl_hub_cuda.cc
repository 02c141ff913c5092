// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/nccl_lane.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{100};

}  // namespace

NcclHub::NcclHub(const NcclOptions& options)
    : options_(options),
      gloo_(make_rendezvous_backend({.rank = options.rank,
                                     .world_size = options.world_size,
                                     .master_addr = options.master_addr,
                                     .master_port = options.master_port,
                                     .timeout = options.timeout})),
      store_(gloo_->open_store()),
      scratch_(tensor::zeros({2}, DType::Byte, options.device)),
      thread_([this] { run(); }) {
  tensor::synchronize(options.device);
}

NcclHub::~NcclHub() { stop(); }

std::string NcclHub::failure() {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return failure_;
  }
  return gloo_->failure();
}

void NcclHub::fail(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = text;
  }
  abort_lanes();
  gloo_->poison(text);
}

void NcclHub::add(const std::shared_ptr<Lane>& lane) {
  const std::lock_guard lock(mutex_);
  std::erase_if(lanes_, [](const std::weak_ptr<Lane>& known) { return known.expired(); });
  lanes_.push_back(lane);
}

void NcclHub::watch(std::shared_ptr<LaneOp> op) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({std::move(op), Clock::now() + options_.timeout});
}

std::vector<std::shared_ptr<Lane>> NcclHub::live_lanes() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Lane>> result;
  for (const std::weak_ptr<Lane>& known : lanes_) {
    if (auto lane = known.lock()) result.push_back(std::move(lane));
  }
  return result;
}

void NcclHub::abort_lanes() {
  for (const auto& lane : live_lanes()) lane->abort();
}

void NcclHub::check_lanes() {
  for (const auto& lane : live_lanes()) {
    if (const std::string error = lane->asynchronous_error(); !error.empty()) {
      return fail(fmt::format("{} on rank {}", error, options_.rank));
    }
  }
}

void NcclHub::check_deadlines() {
  std::shared_ptr<LaneOp> late;
  std::vector<std::shared_ptr<LaneOp>> done;  // let go without the mutex
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&](Watched& watched) {
      if (!watched.op->end.query()) {
        if (!late && Clock::now() >= watched.deadline) late = watched.op;
        return false;
      }
      done.push_back(std::move(watched.op));
      return true;
    });
  }
  if (late) {
    fail(fmt::format("{}: no answer within {} ms{} (--distributed-timeout-minutes)", late->where,
                     options_.timeout.count(), late->missing ? late->missing() : ""));
  }
}

void NcclHub::run() {
  tensor::use_device(options_.device);
  std::unique_lock lock(stop_mutex_);
  while (!stop_changed_.wait_for(lock, kPoll, [this] { return stop_; })) {
    lock.unlock();
    try {
      if (failure().empty()) {
        check_lanes();
        check_deadlines();
      } else {
        abort_lanes();
      }
    } catch (const std::exception& error) {
      fail(fmt::format("rank {}: {}", options_.rank, error.what()));
    }
    lock.lock();
  }
}

void NcclHub::stop() {
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
    stop_changed_.notify_all();
  }
  // The last owner may be the thread of a lane, never this one.
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  watched_.clear();
}

}  // namespace pentatron::comm

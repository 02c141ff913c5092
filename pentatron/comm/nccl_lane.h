// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/comm/nccl_backend.h"
#include "pentatron/comm/store.h"

// Inside the CUDA library's nccl backend: communicators with their streams, and the watch over
// them.
namespace pentatron::comm {

class Lane;

// One started operation.
struct LaneOp {
  std::string where;  // "group 'main/tp:0', all_reduce #7 on rank 1"
  // Who has not come, asked when the time is over; none: not known.
  std::function<std::string()> missing;
  std::vector<Tensor> tensors;  // held until wait()
  std::function<ncclResult_t(ncclComm_t, cudaStream_t)> call;
  c10::cuda::CUDAEvent start;  // the current stream, when the operation was posted
  c10::cuda::CUDAEvent end;    // the lane's stream, behind the operation
  bool issued = false;         // `end` is recorded (under the lane's mutex)
  bool in_graph = false;       // part of a recorded step: its events cannot be asked
  bool deferred = false;       // not handed over yet (under the lane's mutex)
};

// What the lanes of one rank share: the GPU, the rendezvous, the first failure, and a thread that
// watches for NCCL's errors, for operations that are not answered in time and for failed peers.
class NcclHub final {
 public:
  explicit NcclHub(const NcclOptions& options);
  ~NcclHub();
  NcclHub(const NcclHub&) = delete;
  NcclHub& operator=(const NcclHub&) = delete;

  [[nodiscard]] const NcclOptions& options() const { return options_; }
  [[nodiscard]] Device device() const { return options_.device; }
  [[nodiscard]] RendezvousBackend& gloo() { return *gloo_; }
  [[nodiscard]] Store& store() { return *store_; }
  // Two bytes on the GPU whose values mean nothing: one to send, one to receive.
  [[nodiscard]] std::uint8_t* scratch() { return scratch_.data_ptr<std::uint8_t>(); }

  // The first known failure of any rank, or nothing.
  [[nodiscard]] std::string failure();
  // This rank failed: every lane is ended and the peers are told.
  void fail(const std::string& text);

  void add(const std::shared_ptr<Lane>& lane);
  // Watches an issued operation until its end has passed.
  void watch(std::shared_ptr<LaneOp> op);
  void stop();

 private:
  struct Watched {
    std::shared_ptr<LaneOp> op;
    std::chrono::steady_clock::time_point deadline;
  };

  void run();
  void check_lanes();
  void check_deadlines();
  void abort_lanes();
  [[nodiscard]] std::vector<std::shared_ptr<Lane>> live_lanes();

  NcclOptions options_;
  std::unique_ptr<RendezvousBackend> gloo_;
  std::unique_ptr<Store> store_;
  Tensor scratch_;

  std::mutex mutex_;
  std::string failure_;
  std::vector<std::weak_ptr<Lane>> lanes_;
  std::deque<Watched> watched_;

  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

// One communicator and its stream. Operations run in the order they were posted in.
class Lane final : public std::enable_shared_from_this<Lane> {
 public:
  // `rank` of `size` inside the lane; `name` equal on all members and used once a run. `pair`: data
  // flows from member 0 to member 1 only.
  Lane(std::shared_ptr<NcclHub> hub, std::string name, int rank, int size, bool pair);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Queues the operation behind what the current stream holds. `deferred`: it is handed over when
  // it, or one posted after it, is waited for.
  [[nodiscard]] std::shared_ptr<LaneOp> post(
      std::string where, std::vector<Tensor> tensors,
      std::function<ncclResult_t(ncclComm_t, cudaStream_t)> call, bool deferred = false,
      std::function<std::string()> missing = {});
  // Makes the communicator, if nobody has begun to; wait_open() waits until it is there.
  void start_opening();
  void wait_open();
  // The current stream waits for the operation; the host only until it is on its way.
  void wait(LaneOp& op);
  // Whether the operation has ended on the GPU; the host does not wait.
  [[nodiscard]] bool finished(const LaneOp& op);
  // NCCL's own error, or nothing.
  [[nodiscard]] std::string asynchronous_error();
  // Ends the communicator whatever it does; safe from another thread, also during a call.
  void abort();
  // The lane is not used again. In good order: waits for its work and frees the communicator.
  void close(bool in_good_order);

 private:
  void open();
  void connect();
  void meet_members(ncclUniqueId& id);
  void prime();
  void issue(LaneOp& op);
  void hand_over(std::shared_ptr<LaneOp> op);
  void hand_over_until(const LaneOp& op);
  // Waits for what `done` tells, with the mutex held by `lock`: at most as long as connecting
  // takes.
  template <typename Done>
  void wait_until(std::unique_lock<std::mutex>& lock, const std::string& where, const Done& done);
  [[noreturn]] void throw_failure(const std::string& where, const std::string& reason) const;

  std::shared_ptr<NcclHub> hub_;
  std::string name_;
  int rank_;
  int size_;
  bool pair_;
  cudaStream_t raw_stream_ = nullptr;

  std::mutex mutex_;  // order of operations; held while one is handed to NCCL
  std::condition_variable changed_;
  std::deque<std::shared_ptr<LaneOp>> queued_;  // before the communicator is there
  std::deque<std::shared_ptr<LaneOp>> deferred_;
  bool opening_ = false;
  bool ready_ = false;
  std::atomic<ncclComm_t> comm_{nullptr};  // read by abort() without the mutex
  std::atomic<bool> ended_{false};
};

}  // namespace pentatron::comm

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/nccl_lane.h"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"

namespace pentatron::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kFailurePoll{50};
constexpr milliseconds kConnectTime{120'000};

void check(cudaError_t code, std::string_view what) {
  PENTATRON_CHECK(code == cudaSuccess, kCuda, "{}: {}", what, cudaGetErrorString(code));
}

bool being_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

std::string nccl_text(ncclResult_t code, ncclComm_t comm) {
  std::string text = ncclGetErrorString(code);
  const char* detail = ncclGetLastError(comm);
  if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
  return text;
}

c10::cuda::CUDAStream external(cudaStream_t stream, Device device) {
  return c10::cuda::getStreamFromExternal(stream, device.index());
}

}  // namespace

Lane::Lane(std::shared_ptr<NcclHub> hub, std::string name, int rank, int size, bool pair)
    : hub_(std::move(hub)), name_(std::move(name)), rank_(rank), size_(size), pair_(pair) {
  const c10::cuda::CUDAGuard on_gpu(hub_->device());
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
  // A stream of its own: in a shared one a send that waits for its receiver could hold up the
  // receive that the peer waits for.
  check(cudaStreamCreateWithPriority(&raw_stream_, cudaStreamNonBlocking, greatest),
        "making a stream");
}

Lane::~Lane() { close(false); }

std::shared_ptr<LaneOp> Lane::post(std::string where, std::vector<Tensor> tensors,
                                   std::function<ncclResult_t(ncclComm_t, cudaStream_t)> call,
                                   bool deferred, std::function<std::string()> missing) {
  if (const std::string reason = hub_->failure(); !reason.empty()) throw_failure(where, reason);
  const c10::cuda::CUDAGuard on_gpu(hub_->device());
  const auto current = c10::cuda::getCurrentCUDAStream();
  const bool recorded = being_recorded(current);
  auto op = std::make_shared<LaneOp>();
  op->where = std::move(where);
  op->tensors = std::move(tensors);
  op->call = std::move(call);
  op->missing = std::move(missing);
  op->in_graph = recorded;
  op->deferred = deferred;
  op->start.record(current);
  {
    const std::lock_guard lock(mutex_);
    PENTATRON_CHECK(ready_ || !recorded, kInternal,
                    "{}: the first use of this lane is in a step that is being recorded; run the "
                    "step once before",
                    op->where);
    if (deferred) {
      deferred_.push_back(op);
    } else {
      hand_over(op);
    }
  }
  start_opening();
  return op;
}

void Lane::start_opening() {
  {
    const std::lock_guard lock(mutex_);
    if (ready_ || std::exchange(opening_, true)) return;
  }
  // The thread shares ownership of the lane and its hub: they outlive the group if it is destroyed.
  std::thread([self = shared_from_this()] { self->open(); }).detach();
}

template <typename Done>
void Lane::wait_until(std::unique_lock<std::mutex>& lock, const std::string& where,
                      const Done& done) {
  // The members have this time to sign in, NCCL some more to connect them.
  const auto deadline = Clock::now() + hub_->options().timeout + kConnectTime;
  while (!done()) {
    changed_.wait_for(lock, kFailurePoll);
    if (done()) break;
    if (Clock::now() >= deadline) {
      lock.unlock();  // ending the lanes takes it
      hub_->fail(fmt::format("{}: NCCL does not connect the members", where));
      lock.lock();
    }
    if (const std::string reason = hub_->failure(); !reason.empty()) throw_failure(where, reason);
  }
}

void Lane::wait_open() {
  std::unique_lock lock(mutex_);
  wait_until(lock, name_, [this] { return ready_; });
}

// With the mutex held, on the lane's GPU.
void Lane::hand_over(std::shared_ptr<LaneOp> op) {
  if (!ready_) {
    queued_.push_back(std::move(op));
    return;
  }
  issue(*op);
  // A recorded operation runs with its graph, and its events cannot be asked.
  if (!op->in_graph) hub_->watch(std::move(op));
}

// Those that were posted before go first. With the mutex held.
void Lane::hand_over_until(const LaneOp& op) {
  const c10::cuda::CUDAGuard on_gpu(hub_->device());
  for (bool more = op.deferred; more;) {
    std::shared_ptr<LaneOp> next = std::move(deferred_.front());
    deferred_.pop_front();
    next->deferred = false;
    more = next.get() != &op;
    hand_over(std::move(next));
  }
}

void Lane::wait(LaneOp& op) {
  {
    std::unique_lock lock(mutex_);
    hand_over_until(op);
    wait_until(lock, op.where, [&op] { return op.issued; });
  }
  if (const std::string reason = hub_->failure(); !reason.empty()) throw_failure(op.where, reason);
  const c10::cuda::CUDAGuard on_gpu(hub_->device());
  op.end.block(c10::cuda::getCurrentCUDAStream());
}

bool Lane::finished(const LaneOp& op) {
  const std::lock_guard lock(mutex_);
  return op.issued && !op.in_graph && op.end.query();
}

void Lane::throw_failure(const std::string& where, const std::string& reason) const {
  PENTATRON_THROW(kComm, "{}: {}", where, reason);
}

// With the mutex held, on the lane's GPU.
void Lane::issue(LaneOp& op) {
  op.start.block(external(raw_stream_, hub_->device()));
  const ncclComm_t comm = comm_.load();
  const ncclResult_t code = ended_.load() ? ncclInternalError : op.call(comm, raw_stream_);
  if (code != ncclSuccess) {
    const std::string known = hub_->failure();
    throw_failure(op.where,
                  known.empty() ? nccl_text(code, ended_.load() ? nullptr : comm) : known);
  }
  op.end.record(external(raw_stream_, hub_->device()));
  op.call = nullptr;
  op.issued = true;
  changed_.notify_all();
}

// The lane's own thread: makes the communicator and hands over what was posted meanwhile.
void Lane::open() {
  try {
    const c10::cuda::CUDAGuard on_gpu(hub_->device());
    connect();
    const std::lock_guard lock(mutex_);
    while (!queued_.empty()) {
      issue(*queued_.front());
      hub_->watch(std::move(queued_.front()));
      queued_.pop_front();
    }
    ready_ = true;
  } catch (const std::exception& error) {
    if (!ended_.load()) hub_->fail(error.what());
  }
  changed_.notify_all();
}

void Lane::connect() {
  ncclUniqueId id{};
  meet_members(id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t comm = nullptr;
  const ncclResult_t code = ncclCommInitRankConfig(&comm, size_, id, rank_, &config);
  PENTATRON_CHECK(code == ncclSuccess, kComm, "{}: NCCL does not connect on rank {}: {}", name_,
                  hub_->options().rank, nccl_text(code, nullptr));
  comm_.store(comm);
  if (pair_) prime();
}

// NCCL waits without end for members that do not come, so all of them sign in first.
void Lane::meet_members(ncclUniqueId& id) {
  Store& store = hub_->store();
  const std::string key = "nccl/" + name_;
  if (rank_ == 0) {
    const ncclResult_t code = ncclGetUniqueId(&id);
    PENTATRON_CHECK(code == ncclSuccess, kComm, "{}: NCCL gives no identity on rank {}: {}", name_,
                    hub_->options().rank, nccl_text(code, nullptr));
    store.set(key + "/id", std::string(id.internal, sizeof(id.internal)));
  }
  store.add(key + "/members", 1);
  const auto deadline = Clock::now() + hub_->options().timeout;
  for (auto pause = milliseconds(1); store.add(key + "/members", 0) < size_;) {
    PENTATRON_CHECK(!ended_.load() && hub_->failure().empty(), kComm, "{}: given up", name_);
    PENTATRON_CHECK(Clock::now() < deadline, kComm,
                    "{}: rank {} waited {} ms for the other members to use it "
                    "(--distributed-timeout-minutes)",
                    name_, hub_->options().rank, hub_->options().timeout.count());
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(20));
  }
  if (rank_ == 0) return;
  const auto bytes = store.get(key + "/id");
  PENTATRON_CHECK(bytes && bytes->size() == sizeof(id.internal), kInternal, "{}: no identity",
                  name_);
  std::memcpy(id.internal, bytes->data(), bytes->size());
}

// One byte along the pair, so that later calls find the way connected and never wait for the peer
// on the host. It touches no stream but the lane's: the current one may hold work that waits for
// what is behind this.
void Lane::prime() {
  std::uint8_t* const bytes = hub_->scratch();
  const ncclResult_t code = rank_ == 0
                                ? ncclSend(bytes, 1, ncclInt8, 1, comm_.load(), raw_stream_)
                                : ncclRecv(bytes + 1, 1, ncclInt8, 0, comm_.load(), raw_stream_);
  const cudaError_t done = cudaStreamSynchronize(raw_stream_);
  PENTATRON_CHECK(code == ncclSuccess, kComm, "{}: NCCL does not connect on rank {}: {}", name_,
                  hub_->options().rank, nccl_text(code, comm_.load()));
  check(done, "connecting two GPUs");
}

std::string Lane::asynchronous_error() {
  // Who holds the mutex is in a call of NCCL's, which reports for itself.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const ncclComm_t comm = comm_.load();
  if (!lock.owns_lock() || comm == nullptr || ended_.load()) return {};
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(comm, &state);
  if (code == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) return {};
  return fmt::format("{}: {}", name_, nccl_text(code == ncclSuccess ? state : code, comm));
}

void Lane::abort() {
  if (ended_.exchange(true)) return;
  // A call that hangs holds the mutex and is what must be ended.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (const ncclComm_t comm = comm_.load(); comm != nullptr) static_cast<void>(ncclCommAbort(comm));
  changed_.notify_all();
}

void Lane::close(bool in_good_order) {
  if (raw_stream_ == nullptr) return;
  // The stream of a lane that failed or is still being opened stays: work may hang in it.
  if (!in_good_order) return abort();
  const std::lock_guard lock(mutex_);
  if (ended_.exchange(true) || (opening_ && !ready_)) return;
  const c10::cuda::CUDAGuard on_gpu(hub_->device());
  static_cast<void>(cudaStreamSynchronize(raw_stream_));
  if (const ncclComm_t comm = comm_.exchange(nullptr); comm != nullptr) {
    static_cast<void>(ncclCommDestroy(comm));
  }
  static_cast<void>(cudaStreamDestroy(raw_stream_));
  raw_stream_ = nullptr;
}

}  // namespace pentatron::comm

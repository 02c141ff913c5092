// SPDX-License-Identifier: Apache-2.0
// The one file that sees the library's process groups (gloo_rendezvous.cc sees its store). It is
// compiled with gloo_stubs/ in the include path.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/gloo_rendezvous.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/reduce.h"
#include "pentatron/comm/store.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPoisonPoll{100};
constexpr milliseconds kLinger{1500};
constexpr const char* kPoisonKey = "poison";
constexpr const char* kSeenKey = "poison-seen";
constexpr const char* kShutdownKey = "shutdown";

std::shared_ptr<::gloo::transport::Device> make_device(const GlooOptions& options) {
  const auto interface = env_string("GLOO_SOCKET_IFNAME");
  const std::string address =
      interface ? *interface : local_address_towards(options.master_addr, options.master_port);
  try {
    return interface ? c10d::ProcessGroupGloo::createDeviceForInterface(address)
                     : c10d::ProcessGroupGloo::createDeviceForHostname(address);
  } catch (const std::exception& error) {
    PENTATRON_THROW(kComm, "rank {} cannot open a socket on {} '{}': {} (GLOO_SOCKET_IFNAME)",
                    options.rank, interface ? "interface" : "address", address,
                    short_message(error));
  }
}

// What the groups of one rank share: the store, the first failure of any rank, and the waits to
// wake when it comes.
class Shared final {
 public:
  explicit Shared(const GlooOptions& options) : options_(options) {
    // torchrun's own agent already serves a store on the master port.
    const bool agent = env_string("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
    const auto attempt = env_int("TORCHELASTIC_RESTART_COUNT", 0).value_or(0);
    prefix_ = fmt::format("pentatron/{}/", attempt);
    tcp_ = connect_store(options_, options_.rank == 0 && !agent);
    store_ = c10::make_intrusive<c10d::PrefixStore>(prefix_, tcp_);
    wait_for_members();
    device_ = make_device(options_);
    // A connection of its own: calls on the first one may block on peers.
    if (options_.world_size == 1) return;
    auto own = connect_store(options_, false);
    watch_store_ = c10::make_intrusive<c10d::PrefixStore>(prefix_, own);
    monitor_ = std::thread([this] { watch(); });
  }

  ~Shared() { stop_monitor(); }

  const GlooOptions& options() const { return options_; }
  const std::shared_ptr<::gloo::transport::Device>& device() const { return device_; }
  // A connection apart from ours.
  std::unique_ptr<Store> open_store() const { return open_rendezvous_store(options_, prefix_); }
  c10::intrusive_ptr<c10d::Store> store_for(const std::string& group) const {
    return c10::make_intrusive<c10d::PrefixStore>(group + "/", store_);
  }

  void poison(const std::string& message) {
    const std::string text = fmt::format("rank {} failed: {}", options_.rank, message);
    fail(text);
    try {
      const std::vector<std::uint8_t> bytes(text.begin(), text.end());
      store_->compareSet(kPoisonKey, {}, bytes);  // the first one stays
      store_->add(kSeenKey, 1);
      if (options_.rank == 0) linger();
    } catch (const std::exception& error) {
      log::debug("the failure could not be told to the peers: {}", short_message(error));
    }
  }

  // The first failure that is known; with `ask` the store is asked now.
  std::string failure(bool ask) {
    if (ask) ask_store();
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Runs until `done` (under the mutex) or a failure; returns the failure or an empty text.
  std::string wait_until(const std::function<bool()>& done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done() || !failure_.empty(); });
    return done() ? std::string() : failure_;
  }
  void notify(const std::function<void()>& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  // Point-to-point waits block inside the library; a failure aborts those that are registered.
  // False: failed already.
  bool enter_wait(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return false;
    waiting_.insert(work);
    return true;
  }
  void leave_wait(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    waiting_.erase(work);
  }

  void shutdown() {
    stop_monitor();
    if (!failure(false).empty()) return;
    // The store's server ends with rank 0, so rank 0 leaves last.
    store_->add(kShutdownKey, 1);
    if (options_.rank != 0) return;
    const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
    while (store_->add(kShutdownKey, 0) < options_.world_size) {
      PENTATRON_CHECK(std::chrono::steady_clock::now() < deadline, kComm,
                      "rank 0: not all ranks reached shutdown within {} ms",
                      options_.timeout.count());
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

 private:
  // Every rank signs in, so that a missing one is named instead of hanging the first group.
  void wait_for_members() {
    const auto joined = store_->add(fmt::format("join/{}", options_.rank), 1);
    PENTATRON_CHECK(joined == 1, kComm,
                    "rank {} joined the rendezvous at {}:{} twice: another run uses the port, or "
                    "two processes have the same RANK",
                    options_.rank, options_.master_addr, options_.master_port);
    const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
    for (std::int64_t rank = 0; rank < options_.world_size;) {
      if (store_->check({fmt::format("join/{}", rank)})) {
        ++rank;
        continue;
      }
      PENTATRON_CHECK(std::chrono::steady_clock::now() < deadline, kComm,
                      "rank {}: rank {} of {} did not join the rendezvous at {}:{} within {} ms "
                      "(--distributed-timeout-minutes)",
                      options_.rank, rank, options_.world_size, options_.master_addr,
                      options_.master_port, options_.timeout.count());
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = text;
    changed_.notify_all();
    for (c10d::Work* work : waiting_) work->abort();
  }

  // The store ends with rank 0: leave the peers that live the time to read the reason.
  void linger() {
    const auto deadline = std::chrono::steady_clock::now() + kLinger;
    while (store_->add(kSeenKey, 0) < options_.world_size &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  void ask_store() {
    const std::lock_guard lock(watch_mutex_);
    if (!watch_store_ || !failure(false).empty()) return;
    try {
      if (!watch_store_->check({kPoisonKey})) return;
      const auto bytes = watch_store_->get(kPoisonKey);
      watch_store_->add(kSeenKey, 1);
      fail(std::string(bytes.begin(), bytes.end()));
    } catch (const std::exception& error) {
      watch_store_.reset();
      fail(fmt::format("rank 0 ended: its rendezvous at {}:{} is gone ({})", options_.master_addr,
                       options_.master_port, short_message(error)));
    }
  }

  void watch() {
    std::unique_lock lock(stop_mutex_);
    while (!stop_changed_.wait_for(lock, kPoisonPoll, [this] { return stop_; })) {
      lock.unlock();
      ask_store();
      lock.lock();
    }
  }

  void stop_monitor() {
    {
      const std::lock_guard lock(stop_mutex_);
      stop_ = true;
      stop_changed_.notify_all();
    }
    if (monitor_.joinable()) monitor_.join();
  }

  GlooOptions options_;
  std::string prefix_;
  c10::intrusive_ptr<c10d::Store> tcp_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<::gloo::transport::Device> device_;

  std::mutex watch_mutex_;
  c10::intrusive_ptr<c10d::Store> watch_store_;
  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread monitor_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  std::set<c10d::Work*> waiting_;
};

// One started operation. `finish` copies results back from a conversion; both it and the library's
// work keep the tensors.
class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<Shared> shared, c10::intrusive_ptr<c10d::Work> work, bool pair,
           std::string where, std::function<void()> finish)
      : shared_(std::move(shared)),
        work_(std::move(work)),
        pair_(pair),
        where_(std::move(where)),
        finish_(std::move(finish)),
        exceptions_(std::uncaught_exceptions()) {}

  ~GlooWork() override {
    // While an exception passes, the peers may never come: the library's threads keep what they
    // need.
    if (!work_ || std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (const std::exception& error) {
      log::warn("an unfinished operation was dropped: {}", error.what());
    }
  }

  void wait() override {
    if (!work_) return;
    const auto work = std::move(work_);
    work_.reset();
    try {
      pair_ ? wait_pair(*work) : wait_collective(*work);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      // A peer that failed in good order has left its reason in the store.
      const std::string reason = shared_->failure(true);
      PENTATRON_THROW(kComm, "{}: {}", where_,
                      reason.empty()
                          ? "a member of the group is gone or hangs: " + short_message(error)
                          : reason);
    }
    if (finish_) finish_();
    finish_ = nullptr;
  }

 private:
  void wait_pair(c10d::Work& work) {
    if (!shared_->enter_wait(&work)) throw_failure(shared_->failure(false));
    bool done = false;
    try {
      done = work.wait();
    } catch (...) {
      shared_->leave_wait(&work);
      throw;
    }
    shared_->leave_wait(&work);
    if (!done) throw_failure(shared_->failure(false));
  }

  void wait_collective(c10d::Work& work) {
    // The flag outlives this object: a callback of an operation that hangs may come later or never.
    const auto done = std::make_shared<bool>(false);
    work.getFuture()->addCallback(
        [done, shared = shared_](c10::ivalue::Future&) { shared->notify([&] { *done = true; }); });
    const std::string failure = shared_->wait_until([&] { return *done; });
    if (!failure.empty()) throw_failure(failure);
    work.wait();
  }

  [[noreturn]] void throw_failure(const std::string& failure) const {
    PENTATRON_THROW(kComm, "{}: {}", where_, failure);
  }

  std::shared_ptr<Shared> shared_;
  c10::intrusive_ptr<c10d::Work> work_;
  bool pair_;
  std::string where_;
  std::function<void()> finish_;
  int exceptions_;
};

c10d::ReduceOp library_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  PENTATRON_THROW(kInternal, "unknown reduction");
}

// Operations that only move data move bytes, so they work for every dtype.
Tensor as_bytes(const Tensor& t) { return t.view({-1}).view(DType::Byte); }

bool is_half(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Half; }

class GlooGroup final : public GroupBase {
 public:
  GlooGroup(std::shared_ptr<Shared> shared, std::string name, std::vector<std::int64_t> ranks,
            const std::string& store_name)
      : GroupBase(std::move(name), std::move(ranks), shared->options().rank,
                  shared->options().world_size),
        shared_(std::move(shared)) {
    auto options = c10d::ProcessGroupGloo::Options::create(shared_->options().timeout);
    options->devices.push_back(shared_->device());
    options->group_name = this->name();
    try {
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(shared_->store_for(store_name), rank(),
                                                           size(), options);
    } catch (const std::exception& error) {
      PENTATRON_THROW(kComm, "{}: {}", where("connecting"), short_message(error));
    }
  }

  ~GlooGroup() override {
    // After a failure the library's threads may wait for peers for ever, and its destructor for
    // them: the process is about to end, so the group stays behind.
    if (!shared_->failure(false).empty()) static_cast<void>(group_.release());
  }

  WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    check("all_reduce", t);
    if (t.numel() == 0) return finished_work();
    const bool convert = is_half(t.scalar_type());
    std::vector<Tensor> tensors{convert ? t.to(DType::Float) : t};
    c10d::AllreduceOptions options;
    options.reduceOp = library_op(op);
    return start(
        "all_reduce", [&] { return group_->allreduce(tensors, options); },
        convert ? std::function<void()>([t, wide = tensors[0]] { t.copy_(wide); }) : nullptr);
  }

  WorkPtr all_gather(Tensor out, Tensor in) override {
    check("all_gather", out);
    check("all_gather", in);
    check_whole("all_gather", out, in);
    if (in.numel() == 0) return finished_work();
    Tensor to = as_bytes(out);
    Tensor from = as_bytes(in);
    return start("all_gather", [&] { return group_->_allgather_base(to, from); });
  }

  WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    check("reduce_scatter", out);
    check("reduce_scatter", in);
    check_whole("reduce_scatter", in, out);
    if (out.numel() == 0) return finished_work();
    // The members' slices of this rank come as they are and are reduced here, in order of rank: the
    // volume of a reduce-scatter (the library would all-reduce the whole), and the same bits as the
    // threads backend.
    Tensor from = as_bytes(in);
    Tensor parts = tensor::empty({from.numel()}, DType::Byte);
    std::vector<std::int64_t> splits(world_ranks().size(), from.numel() / size());
    return start(
        "reduce_scatter", [&] { return group_->alltoall_base(parts, from, splits, splits); },
        [parts, out, op, bytes = splits[0], members = splits.size()] {
          std::vector<const void*> ins;
          for (std::size_t m = 0; m < members; ++m) {
            ins.push_back(static_cast<const char*>(parts.const_data_ptr()) +
                          static_cast<std::int64_t>(m) * bytes);
          }
          void* const target = out.mutable_data_ptr();
          reduce_in_order(out.scalar_type(), op, ins, {&target, 1}, out.numel());
        });
  }

  WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                     std::vector<std::int64_t> in_splits) override {
    check("all_to_all", out);
    check("all_to_all", in);
    const std::int64_t row_bytes = check_splits(out, in, out_splits, in_splits);
    for (std::int64_t& split : out_splits) split *= row_bytes;
    for (std::int64_t& split : in_splits) split *= row_bytes;
    Tensor to = as_bytes(out);
    Tensor from = as_bytes(in);
    return start("all_to_all",
                 [&] { return group_->alltoall_base(to, from, out_splits, in_splits); });
  }

  WorkPtr broadcast(Tensor t, int root) override {
    check("broadcast", t);
    check_member("broadcast", root);
    if (t.numel() == 0) return finished_work();
    std::vector<Tensor> tensors{as_bytes(t)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return start("broadcast", [&] { return group_->broadcast(tensors, options); });
  }

  WorkPtr send(Tensor t, int peer) override {
    check("send", t);
    check_peer("send", peer);
    if (t.numel() == 0) return finished_work();
    std::vector<Tensor> tensors{as_bytes(t)};
    return start(
        fmt::format("send to rank {}", world_ranks()[static_cast<std::size_t>(peer)]),
        [&] { return group_->send(tensors, peer, 0); }, nullptr, true);
  }

  WorkPtr recv(Tensor t, int peer) override {
    check("recv", t);
    check_peer("recv", peer);
    if (t.numel() == 0) return finished_work();
    std::vector<Tensor> tensors{as_bytes(t)};
    return start(
        fmt::format("recv from rank {}", world_ranks()[static_cast<std::size_t>(peer)]),
        [&] { return group_->recv(tensors, peer, 0); }, nullptr, true);
  }

  void barrier() override {
    start("barrier", [&] { return group_->barrier(); })->wait();
  }

 private:
  void check(std::string_view op, const Tensor& t) const {
    check_tensor(op, t);
    PENTATRON_CHECK(t.is_cpu(), kUnsupported, "{}: the gloo backend takes CPU tensors, got {}",
                    where(op), tensor::describe(t));
  }

  template <typename Launch>
  WorkPtr start(std::string_view op, const Launch& launch, std::function<void()> finish = nullptr,
                bool pair = false) {
    const std::string place = where(op);
    if (const std::string failure = shared_->failure(false); !failure.empty()) {
      PENTATRON_THROW(kComm, "{}: {}", place, failure);
    }
    try {
      return std::make_unique<GlooWork>(shared_, launch(), pair, place, std::move(finish));
    } catch (const std::exception& error) {
      const std::string reason = shared_->failure(true);
      PENTATRON_THROW(kComm, "{}: {}", place, reason.empty() ? short_message(error) : reason);
    }
  }

  std::shared_ptr<Shared> shared_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

class GlooBackend final : public RendezvousBackend {
 public:
  explicit GlooBackend(const GlooOptions& options) : shared_(std::make_shared<Shared>(options)) {}

  std::string name() const override { return "gloo"; }
  std::int64_t rank() const override { return shared_->options().rank; }
  std::int64_t world_size() const override { return shared_->options().world_size; }
  std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                    const std::string& name) override {
    if (ranks.size() == 1) return make_local_group(name, ranks, rank(), world_size());
    return std::make_unique<GlooGroup>(shared_, name, ranks,
                                       fmt::format("group/{}/{}", name, generations_[name]++));
  }
  void poison(const std::string& message) override { shared_->poison(message); }
  void shutdown() override { shared_->shutdown(); }
  std::unique_ptr<Store> open_store() override { return shared_->open_store(); }
  std::string failure() override { return shared_->failure(false); }

 private:
  std::shared_ptr<Shared> shared_;
  std::map<std::string, std::int64_t> generations_;  // times a name was used before
};

}  // namespace

std::unique_ptr<RendezvousBackend> make_rendezvous_backend(const GlooOptions& options) {
  PENTATRON_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
                  kConfig, "gloo backend: rank {} is outside a world of {} (RANK, WORLD_SIZE)",
                  options.rank, options.world_size);
  PENTATRON_CHECK(options.master_port >= 1 && options.master_port <= 65535, kConfig,
                  "gloo backend: port {} is outside 1 to 65535 (--master-port or MASTER_PORT)",
                  options.master_port);
  return std::make_unique<GlooBackend>(options);
}

std::unique_ptr<Backend> make_gloo_backend(const GlooOptions& options) {
  return make_rendezvous_backend(options);
}

}  // namespace pentatron::comm

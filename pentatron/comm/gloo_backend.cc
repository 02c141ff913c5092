// SPDX-License-Identifier: Apache-2.0
// The one file that sees the library's process groups (library_store.cc and agent_store.cc see
// its stores). It is compiled with gloo_stubs/ in the include path.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <exception>
#include <map>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/library_store.h"
#include "pentatron/comm/reduce.h"
#include "pentatron/comm/session.h"
#include "pentatron/comm/store.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

using Device = std::shared_ptr<::gloo::transport::Device>;

Device make_device(const Session& session) {
  const auto interface = env_string("GLOO_SOCKET_IFNAME");
  const std::string address = interface ? *interface : session.local_address();
  try {
    return interface ? c10d::ProcessGroupGloo::createDeviceForInterface(address)
                     : c10d::ProcessGroupGloo::createDeviceForHostname(address);
  } catch (const std::exception& error) {
    PENTATRON_THROW(kComm, "rank {} cannot open a socket on {} '{}': {} (GLOO_SOCKET_IFNAME)",
                    session.options().rank, interface ? "interface" : "address", address,
                    short_message(error));
  }
}

// One started operation. `finish` copies results back from a conversion; both it and the library's
// work keep the tensors.
class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<Session> session, c10::intrusive_ptr<c10d::Work> work, bool pair,
           std::string where, std::function<void()> finish)
      : session_(std::move(session)),
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
      const std::string reason = session_->failure(true);
      if (!reason.empty()) throw_failure(reason);
      const std::string text = fmt::format("a member of the group is gone or hangs: {}{}",
                                           short_message(error), session_->silence());
      session_->fail(text);
      throw_failure(text);
    }
    if (finish_) finish_();
    finish_ = nullptr;
  }

 private:
  void wait_pair(c10d::Work& work) {
    if (!session_->enter_wait(&work, [&work] { work.abort(); })) {
      throw_failure(session_->failure(false));
    }
    bool done = false;
    try {
      done = work.wait(session_->options().timeout);
    } catch (...) {
      session_->leave_wait(&work);
      throw;
    }
    session_->leave_wait(&work);
    if (!done) throw_failure(session_->failure(false));
  }

  void wait_collective(c10d::Work& work) {
    // The flag outlives this object: a callback of an operation that hangs may come later or never.
    const auto done = std::make_shared<bool>(false);
    work.getFuture()->addCallback([done, session = session_](c10::ivalue::Future&) {
      session->notify([&] { *done = true; });
    });
    const std::string failure = session_->wait_until([&] { return *done; });
    if (!failure.empty()) throw_failure(failure);
    work.wait();
  }

  [[noreturn]] void throw_failure(const std::string& failure) const {
    PENTATRON_THROW(kComm, "{}: {}", where_, failure);
  }

  std::shared_ptr<Session> session_;
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
  GlooGroup(std::shared_ptr<Session> session, const Device& device, std::string name,
            std::vector<std::int64_t> ranks, const std::string& store_name)
      : GroupBase(std::move(name), std::move(ranks), session->options().rank,
                  session->options().world_size),
        session_(std::move(session)) {
    auto options = c10d::ProcessGroupGloo::Options::create(session_->options().timeout);
    options->devices.push_back(device);
    options->group_name = this->name();
    session_->note_phase(where("connecting"));
    const auto store = make_library_store(session_->client(), store_name + "/",
                                          [session = session_] { return session->failure(false); });
    try {
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank(), size(), options);
    } catch (const std::exception& error) {
      const std::string reason = session_->failure(true);
      PENTATRON_THROW(kComm, "{}: {}", where("connecting"),
                      reason.empty() ? short_message(error) + session_->silence() : reason);
    }
  }

  ~GlooGroup() override {
    // After a failure the library's threads may wait for peers for ever, and its destructor for
    // them: the process is about to end, so the group stays behind.
    if (!session_->failure(false).empty()) static_cast<void>(group_.release());
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
    if (const std::string failure = session_->failure(false); !failure.empty()) {
      PENTATRON_THROW(kComm, "{}: {}", place, failure);
    }
    session_->note_phase(place);
    try {
      return std::make_unique<GlooWork>(session_, launch(), pair, place, std::move(finish));
    } catch (const std::exception& error) {
      const std::string reason = session_->failure(true);
      PENTATRON_THROW(kComm, "{}: {}", place, reason.empty() ? short_message(error) : reason);
    }
  }

  std::shared_ptr<Session> session_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

class GlooBackend final : public RendezvousBackend {
 public:
  explicit GlooBackend(const GlooOptions& options)
      : session_(std::make_shared<Session>(options)), device_(make_device(*session_)) {}

  std::string name() const override { return "gloo"; }
  std::int64_t rank() const override { return session_->options().rank; }
  std::int64_t world_size() const override { return session_->options().world_size; }
  std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                    const std::string& name) override {
    if (ranks.size() == 1) return make_local_group(name, ranks, rank(), world_size());
    return std::make_unique<GlooGroup>(session_, device_, name, ranks,
                                       fmt::format("group/{}/{}", name, generations_[name]++));
  }
  void poison(const std::string& message) override { session_->poison(message); }
  void note_phase(std::string_view phase) override { session_->note_phase(phase); }
  void shutdown() override { session_->shutdown(); }
  std::unique_ptr<Store> open_store() override { return session_->connect(); }
  std::string failure() override { return session_->failure(false); }

 private:
  std::shared_ptr<Session> session_;
  Device device_;
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

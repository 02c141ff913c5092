// SPDX-License-Identifier: Apache-2.0
// The one file that sees the library's process groups (library_store.cc and agent_store.cc see
// its stores). It is compiled with gloo_stubs/ in the include path.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/call_record.h"
#include "pentatron/comm/call_thread.h"
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

// A collective that its group's thread carries out. The flags are guarded by the session.
struct Started {
  bool done = false;
  std::string problem;       // the members disagree
  std::exception_ptr error;  // of the library
};

// Waits with what all operations have in common: where they are, what they do at the end, and that
// they are left alone while an exception passes.
class GlooWork : public Work {
 public:
  GlooWork(std::shared_ptr<Session> session, std::string where, std::function<void()> finish)
      : session_(std::move(session)),
        where_(std::move(where)),
        finish_(std::move(finish)),
        exceptions_(std::uncaught_exceptions()) {}

  void wait() override {
    if (waited_) return;
    waited_ = true;
    try {
      wait_for_end();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      // A peer that failed in good order has left its reason in the store.
      const std::string why = session_->why_gone();
      const std::string reason = session_->failure(false);
      if (!reason.empty()) throw_failure(reason);
      const std::string text =
          fmt::format("a member of the group is gone or hangs: {}{}", short_message(error), why);
      session_->fail(text);
      throw_failure(text);
    }
    if (finish_) finish_();
    finish_ = nullptr;
  }

 protected:
  // Called by the destructors of those that know how to wait. While an exception passes, the peers
  // may never come: the library's threads keep what they need.
  void wait_at_end() {
    if (waited_ || std::uncaught_exceptions() > exceptions_) return;
    try {
      GlooWork::wait();
    } catch (const std::exception& error) {
      log::warn("an unfinished operation was dropped: {}", error.what());
    }
  }
  virtual void wait_for_end() = 0;
  [[noreturn]] void throw_failure(const std::string& failure) const {
    PENTATRON_THROW(kComm, "{}: {}", where_, failure);
  }
  [[nodiscard]] Session& session() const { return *session_; }

 private:
  std::shared_ptr<Session> session_;
  std::string where_;
  std::function<void()> finish_;
  int exceptions_;
  bool waited_ = false;
};

class GlooCollective final : public GlooWork {
 public:
  // `missing`: who has not come, asked when the time is over.
  GlooCollective(std::shared_ptr<Session> session, std::shared_ptr<Started> started,
                 std::string where, std::function<void()> finish,
                 std::function<std::string()> missing)
      : GlooWork(std::move(session), std::move(where), std::move(finish)),
        started_(std::move(started)),
        missing_(std::move(missing)) {}
  ~GlooCollective() override { wait_at_end(); }

 private:
  void wait_for_end() override {
    const std::string failure = session().wait_until([this] { return started_->done; }, missing_);
    Started end;
    session().notify([&] { end = *started_; });
    if (!end.problem.empty()) throw_failure(end.problem);
    if (!failure.empty()) throw_failure(failure);
    if (end.error) std::rethrow_exception(end.error);
  }

  std::shared_ptr<Started> started_;
  std::function<std::string()> missing_;
};

// A message and the note that goes ahead of it.
class GlooMessage final : public GlooWork {
 public:
  // `payload` is null where the message is empty; `expected` is empty where this rank sends.
  GlooMessage(std::shared_ptr<Session> session, c10::intrusive_ptr<c10d::Work> note,
              c10::intrusive_ptr<c10d::Work> payload, Tensor note_bytes, std::string expected,
              std::string where)
      : GlooWork(std::move(session), std::move(where), nullptr),
        note_(std::move(note)),
        payload_(std::move(payload)),
        note_bytes_(std::move(note_bytes)),
        expected_(std::move(expected)) {}
  ~GlooMessage() override { wait_at_end(); }

 private:
  void wait_for_end() override {
    wait_for(*note_);
    if (!expected_.empty()) {
      const std::string problem = disagreement_of_note(
          {static_cast<const char*>(note_bytes_.const_data_ptr()), kNoteBytes}, expected_);
      if (!problem.empty()) {
        session().fail(problem);
        throw_failure(problem);
      }
    }
    if (payload_) wait_for(*payload_);
  }

  void wait_for(c10d::Work& work) {
    if (!session().enter_wait(&work, [&work] { work.abort(); })) {
      throw_failure(session().failure(false));
    }
    bool done = false;
    try {
      done = work.wait(session().options().timeout);
    } catch (...) {
      session().leave_wait(&work);
      throw;
    }
    session().leave_wait(&work);
    if (!done) throw_failure(session().failure(false));
  }

  c10::intrusive_ptr<c10d::Work> note_;
  c10::intrusive_ptr<c10d::Work> payload_;
  Tensor note_bytes_;
  std::string expected_;
};

c10d::ReduceOp library_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kAverage:  // the library has none: divided afterwards
      return c10d::ReduceOp::SUM;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  PENTATRON_THROW(kInternal, "unknown reduction");
}

// Operations that only move data move bytes, so they work for every dtype.
Tensor as_bytes(const Tensor& t) { return t.view({-1}).view(DType::Byte); }

Tensor bytes_tensor(const std::string& bytes) {
  Tensor t = tensor::empty({static_cast<std::int64_t>(bytes.size())}, DType::Byte);
  std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
  return t;
}

bool is_half(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Half; }

// Before a collective begins, its members compare what they call (CallRecord): another order is
// named, and sizes that differ never reach the library, which would end the process. Both happen on
// the group's own thread, in order, so that posting does not wait.
class GlooGroup final : public GroupBase {
 public:
  GlooGroup(std::shared_ptr<Session> session, const Device& device, std::string name,
            std::vector<std::int64_t> ranks, const std::string& store_name)
      : GroupBase(std::move(name), std::move(ranks), session->options().rank,
                  session->options().world_size),
        session_(std::move(session)),
        key_(store_name),
        messages_(world_ranks().size(), {0, 0}) {
    auto options = c10d::ProcessGroupGloo::Options::create(session_->options().timeout);
    options->devices.push_back(device);
    options->group_name = this->name();
    options->threads = 1;  // collectives of a group go one after another
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
    // The library's threads may wait for peers for ever, and its destructor for them: the process
    // is about to end, so the group stays behind.
    const bool in_good_order = session_->failure(false).empty() && *open_calls_ == 0;
    if (in_good_order) {
      thread_.wait_idle();
    } else {
      static_cast<void>(group_.release());
    }
  }

  WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    check("all_reduce", t);
    const bool convert = is_half(t.scalar_type());
    std::vector<Tensor> tensors{convert ? t.to(DType::Float) : t};
    c10d::AllreduceOptions options;
    options.reduceOp = library_op(op);
    options.timeout = library_limit(*session_);
    const std::string text = fmt::format("all_reduce({}, {})", content_of(t), to_string(op));
    if (t.numel() == 0) return start("all_reduce", {.text = text});
    const bool average = op == ReduceOp::kAverage;
    const auto conclude = [t, total = tensors[0], average, convert, members = size()] {
      if (average) divide_by_members_(total, members);
      if (convert) t.copy_(total);
    };
    return start(
        "all_reduce", {.text = text},
        [tensors, options](c10d::ProcessGroupGloo& group) mutable {
          return group.allreduce(tensors, options);
        },
        convert || average ? std::function<void()>(conclude) : nullptr);
  }

  WorkPtr all_gather(Tensor out, Tensor in) override {
    check("all_gather", out);
    check("all_gather", in);
    check_whole("all_gather", out, in);
    const std::string text = fmt::format("all_gather({})", content_of(in));
    if (in.numel() == 0) return start("all_gather", {.text = text});
    return start("all_gather", {.text = text},
                 [to = as_bytes(out), from = as_bytes(in),
                  options = gather_options(*session_)](c10d::ProcessGroupGloo& group) mutable {
                   return group._allgather_base(to, from, options);
                 });
  }

  WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    check("reduce_scatter", out);
    check("reduce_scatter", in);
    check_whole("reduce_scatter", in, out);
    const std::string text = fmt::format("reduce_scatter({}, {})", content_of(in), to_string(op));
    if (out.numel() == 0) return start("reduce_scatter", {.text = text});
    // The members' slices of this rank come as they are and are reduced here, in order of rank: the
    // volume of a reduce-scatter (the library would all-reduce the whole), and the same bits as the
    // threads backend.
    const Tensor from = as_bytes(in);
    const Tensor parts = tensor::empty({from.numel()}, DType::Byte);
    const std::vector<std::int64_t> splits(world_ranks().size(), from.numel() / size());
    return start("reduce_scatter", {.text = text}, exchange_of(parts, from, splits, splits),
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
    const CallRecord record{.text = fmt::format("all_to_all({}, rows of {} bytes)",
                                                tensor::dtype_name(in.scalar_type()), row_bytes),
                            .sent = in_splits,
                            .received = out_splits};
    for (std::int64_t& split : out_splits) split *= row_bytes;
    for (std::int64_t& split : in_splits) split *= row_bytes;
    return start("all_to_all", record,
                 exchange_of(as_bytes(out), as_bytes(in), out_splits, in_splits));
  }

  WorkPtr broadcast(Tensor t, int root) override {
    check("broadcast", t);
    check_member("broadcast", root);
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = library_limit(*session_);
    const std::string text = fmt::format("broadcast({}, root {})", content_of(t), root);
    if (t.numel() == 0) return start("broadcast", {.text = text});
    return start(
        "broadcast", {.text = text},
        [tensors = std::vector<Tensor>{as_bytes(t)}, options](
            c10d::ProcessGroupGloo& group) mutable { return group.broadcast(tensors, options); });
  }

  WorkPtr send(Tensor t, int peer) override {
    check("send", t);
    check_peer("send", peer);
    return message(t, peer, true);
  }

  WorkPtr recv(Tensor t, int peer) override {
    check("recv", t);
    check_peer("recv", peer);
    return message(t, peer, false);
  }

  void barrier() override { start("barrier", {.text = "barrier()"})->wait(); }

 private:
  using Launch = std::function<c10::intrusive_ptr<c10d::Work>(c10d::ProcessGroupGloo&)>;

  void check(std::string_view op, const Tensor& t) const {
    check_tensor(op, t);
    PENTATRON_CHECK(t.is_cpu(), kUnsupported, "{}: the gloo backend takes CPU tensors, got {}",
                    where(op), tensor::describe(t));
  }

  // Ours comes first, and says who is missing.
  static std::chrono::milliseconds library_limit(const Session& session) {
    return session.options().timeout * 2;
  }

  static c10d::AllgatherOptions gather_options(const Session& session) {
    c10d::AllgatherOptions options;
    options.timeout = library_limit(session);
    return options;
  }

  Launch exchange_of(Tensor to, Tensor from, std::vector<std::int64_t> out_splits,
                     std::vector<std::int64_t> in_splits) const {
    c10d::AllToAllOptions options;
    options.timeout = library_limit(*session_);
    return [to = std::move(to), from = std::move(from), out_splits = std::move(out_splits),
            in_splits = std::move(in_splits), options](c10d::ProcessGroupGloo& group) mutable {
      return group.alltoall_base(to, from, out_splits, in_splits, options);
    };
  }

  void refuse_after_failure(const std::string& place) const {
    if (const std::string failure = session_->failure(false); !failure.empty()) {
      PENTATRON_THROW(kComm, "{}: {}", place, failure);
    }
  }

  // Without `launch` the comparison is all: nothing moves, or nothing but the meeting is wanted.
  WorkPtr start(std::string_view op, CallRecord record, Launch launch = nullptr,
                std::function<void()> finish = nullptr) {
    record.number = calls_++;
    const std::string place = where(fmt::format("{} #{}", op, record.number));
    refuse_after_failure(place);
    session_->note_phase(place);
    session_->note_calls(key_, static_cast<std::int64_t>(calls_));
    auto started = std::make_shared<Started>();
    ++*open_calls_;
    thread_.post([session = session_, group = group_, started, launch = std::move(launch),
                  mine = bytes_tensor(encode(record, size())), name = name(), ranks = world_ranks(),
                  own = rank(), open = open_calls_] {
      carry_out(*session, *group, *started, launch, mine, name, ranks, own, *open);
    });
    return std::make_unique<GlooCollective>(
        session_, std::move(started), place, std::move(finish),
        [session = session_, key = key_, calls = calls_, ranks = world_ranks()] {
          return session->missing(key, static_cast<std::int64_t>(calls), ranks);
        });
  }

  static void carry_out(Session& session, c10d::ProcessGroupGloo& group, Started& started,
                        const Launch& launch, const Tensor& mine, const std::string& name,
                        const std::vector<std::int64_t>& ranks, int own,
                        std::atomic<int>& open_calls) {
    std::string problem;
    std::exception_ptr error;
    try {
      Tensor from = mine;
      Tensor all =
          tensor::empty({mine.numel() * static_cast<std::int64_t>(ranks.size())}, DType::Byte);
      group._allgather_base(all, from, gather_options(session))->wait();
      problem = disagreement(
          {static_cast<const char*>(all.const_data_ptr()), static_cast<std::size_t>(all.numel())},
          name, ranks, own);
      if (problem.empty() && launch) launch(group)->wait();
    } catch (...) {
      error = std::current_exception();
    }
    if (!problem.empty()) session.fail(problem);
    session.notify([&] {
      --open_calls;  // who has waited for all may end the group
      started.done = true;
      started.problem = problem;
      started.error = error;
    });
  }

  // Note and payload at once; a payload whose note does not fit meets nothing.
  WorkPtr message(const Tensor& t, int peer, bool sends) {
    const std::int64_t other = world_ranks()[static_cast<std::size_t>(peer)];
    auto& [sent, received] = messages_[static_cast<std::size_t>(peer)];
    const std::uint64_t number = sends ? sent++ : received++;
    const std::string place = where(sends ? fmt::format("send #{} to rank {}", number, other)
                                          : fmt::format("recv #{} from rank {}", number, other));
    refuse_after_failure(place);
    session_->note_phase(place);
    const std::string text = content_of(t);
    std::vector<Tensor> notes{sends ? bytes_tensor(encode_note(text))
                                    : tensor::empty({kNoteBytes}, DType::Byte)};
    std::vector<Tensor> payloads{as_bytes(t)};
    try {
      const auto post = [&](std::vector<Tensor>& tensors, int tag) {
        return sends ? group_->send(tensors, peer, tag) : group_->recv(tensors, peer, tag);
      };
      auto note = post(notes, 0);
      auto payload =
          t.numel() > 0 ? post(payloads, tag_of(text)) : c10::intrusive_ptr<c10d::Work>();
      return std::make_unique<GlooMessage>(session_, std::move(note), std::move(payload), notes[0],
                                           sends ? std::string() : text, place);
    } catch (const std::exception& error) {
      const std::string reason = session_->failure(true);
      PENTATRON_THROW(kComm, "{}: {}", place, reason.empty() ? short_message(error) : reason);
    }
  }

  std::shared_ptr<Session> session_;
  std::string key_;  // of the group and its generation
  std::uint64_t calls_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> messages_;  // sent, received; by member
  std::shared_ptr<std::atomic<int>> open_calls_ = std::make_shared<std::atomic<int>>(0);
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  CallThread thread_;
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
  void note_calls(const std::string& group, std::int64_t calls) override {
    session_->note_calls(group, calls);
  }
  std::string missing(const std::string& group, std::int64_t calls,
                      const std::vector<std::int64_t>& ranks) override {
    return session_->missing(group, calls, ranks);
  }

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

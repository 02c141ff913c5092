// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/reduce.h"
#include "pentatron/comm/threads_core.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

// A member's part of one collective, as the executing member sees it.
struct Payload {
  const char* in = nullptr;
  char* out = nullptr;
  std::vector<std::int64_t> in_splits;
  std::vector<std::int64_t> out_splits;
};
using Payloads = std::span<const void* const>;

const Payload& at(Payloads payloads, std::size_t member) {
  return *static_cast<const Payload*>(payloads[member]);
}

void copy_bytes(char* to, const char* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

// An operation in progress; keeps its tensors alive.
class ThreadsWork final : public Work {
 public:
  ThreadsWork(std::shared_ptr<threads::Meeting> meeting, int member)
      : meeting_(std::move(meeting)), member_(member), exceptions_(std::uncaught_exceptions()) {}
  ~ThreadsWork() override {
    if (!ticket) return;
    // While an exception passes, the peers may never come: leave instead of waiting for them.
    if (std::uncaught_exceptions() > exceptions_) {
      meeting_->abandon(member_, ticket);
      return;
    }
    try {
      wait();
    } catch (const std::exception& error) {
      log::warn("an unfinished operation was dropped: {}", error.what());
    }
  }
  void wait() override {
    if (!ticket) return;
    const threads::Ticket mine = std::exchange(ticket, nullptr);
    meeting_->wait(member_, mine);
  }
  bool finished() override { return !ticket || meeting_->done(ticket); }

  threads::Ticket ticket;
  Payload payload;
  std::vector<Tensor> tensors;

 private:
  std::shared_ptr<threads::Meeting> meeting_;
  int member_;
  int exceptions_;
};

class ThreadsGroup final : public GroupBase {
 public:
  ThreadsGroup(threads::World& world, std::string name, std::vector<std::int64_t> ranks,
               std::int64_t world_rank)
      : GroupBase(std::move(name), std::move(ranks), world_rank, world.size()),
        meeting_(world.meet(world_rank, this->name(), world_ranks())) {}

  WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    check("all_reduce", t);
    auto work = start(t, t);
    const DType dtype = t.scalar_type();
    const std::int64_t count = t.numel();
    work->ticket =
        meeting_->post(rank(), "all_reduce", fmt::format("{}, {}", content(t), to_string(op)),
                       &work->payload, [=](Payloads payloads) {
                         std::vector<const void*> ins;
                         std::vector<void*> outs;
                         for (std::size_t m = 0; m < payloads.size(); ++m) {
                           ins.push_back(at(payloads, m).in);
                           outs.push_back(at(payloads, m).out);
                         }
                         reduce_in_order(dtype, op, ins, outs, count);
                       });
    return work;
  }

  WorkPtr all_gather(Tensor out, Tensor in) override {
    check("all_gather", in);
    check("all_gather", out);
    check_whole("all_gather", out, in);
    auto work = start(in, out);
    const std::int64_t bytes = byte_count(in);
    work->ticket = meeting_->post(
        rank(), "all_gather", content(in), &work->payload, [bytes](Payloads payloads) {
          for (std::size_t to = 0; to < payloads.size(); ++to) {
            for (std::size_t from = 0; from < payloads.size(); ++from) {
              copy_bytes(at(payloads, to).out + static_cast<std::int64_t>(from) * bytes,
                         at(payloads, from).in, bytes);
            }
          }
        });
    return work;
  }

  WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    check("reduce_scatter", in);
    check("reduce_scatter", out);
    check_whole("reduce_scatter", in, out);
    auto work = start(in, out);
    const DType dtype = in.scalar_type();
    const std::int64_t count = out.numel();
    const std::int64_t bytes = byte_count(out);
    work->ticket = meeting_->post(
        rank(), "reduce_scatter", fmt::format("{}, {}", content(in), to_string(op)), &work->payload,
        [=](Payloads payloads) {
          for (std::size_t to = 0; to < payloads.size(); ++to) {
            std::vector<const void*> ins;
            for (std::size_t m = 0; m < payloads.size(); ++m) {
              ins.push_back(at(payloads, m).in + static_cast<std::int64_t>(to) * bytes);
            }
            void* const target = at(payloads, to).out;
            reduce_in_order(dtype, op, ins, {&target, 1}, count);
          }
        });
    return work;
  }

  WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                     std::vector<std::int64_t> in_splits) override {
    check("all_to_all", in);
    check("all_to_all", out);
    const std::int64_t row_bytes = check_splits(out, in, out_splits, in_splits);
    auto work = start(in, out);
    work->payload.in_splits = std::move(in_splits);
    work->payload.out_splits = std::move(out_splits);
    work->ticket = meeting_->post(
        rank(), "all_to_all",
        fmt::format("{}, rows of {} bytes", tensor::dtype_name(in.scalar_type()), row_bytes),
        &work->payload, [this, row_bytes](Payloads payloads) { exchange(payloads, row_bytes); });
    return work;
  }

  WorkPtr broadcast(Tensor t, int root) override {
    check("broadcast", t);
    check_member("broadcast", root);
    auto work = start(t, t);
    const std::int64_t bytes = byte_count(t);
    work->ticket =
        meeting_->post(rank(), "broadcast", fmt::format("{}, root {}", content(t), root),
                       &work->payload, [bytes, root](Payloads payloads) {
                         for (std::size_t to = 0; to < payloads.size(); ++to) {
                           copy_bytes(at(payloads, to).out,
                                      at(payloads, static_cast<std::size_t>(root)).in, bytes);
                         }
                       });
    return work;
  }

  WorkPtr send(Tensor t, int peer) override {
    auto work = start_message("send", t, peer);
    work->ticket = meeting_->post_send(rank(), peer, content(t), work->payload.in,
                                       static_cast<std::size_t>(byte_count(t)));
    return work;
  }

  WorkPtr recv(Tensor t, int peer) override {
    auto work = start_message("recv", t, peer);
    work->ticket = meeting_->post_recv(rank(), peer, content(t), work->payload.out,
                                       static_cast<std::size_t>(byte_count(t)));
    return work;
  }

  void barrier() override {
    auto work = std::make_unique<ThreadsWork>(meeting_, rank());
    work->ticket = meeting_->post(rank(), "barrier", "", &work->payload, [](Payloads) {});
    work->wait();
  }

 private:
  void check(std::string_view op, const Tensor& t) const {
    check_tensor(op, t);
    PENTATRON_CHECK(t.is_cpu(), kUnsupported, "{}: the threads backend takes CPU tensors, got {}",
                    where(op), tensor::describe(t));
  }

  static std::string content(const Tensor& t) {
    return fmt::format("{} x {}", tensor::dtype_name(t.scalar_type()), t.numel());
  }

  static std::int64_t byte_count(const Tensor& t) {
    return t.numel() * tensor::item_bytes(t.scalar_type());
  }

  std::unique_ptr<ThreadsWork> start(const Tensor& in, const Tensor& out) {
    auto work = std::make_unique<ThreadsWork>(meeting_, rank());
    work->payload.in = static_cast<const char*>(in.const_data_ptr());
    work->payload.out = static_cast<char*>(out.mutable_data_ptr());
    work->tensors = {in, out};
    return work;
  }

  std::unique_ptr<ThreadsWork> start_message(const char* call, const Tensor& t, int peer) {
    check(call, t);
    check_peer(call, peer);
    return start(t, t);
  }

  void exchange(Payloads payloads, std::int64_t row_bytes) const {
    std::vector<std::int64_t> out_row(payloads.size(), 0);
    for (std::size_t from = 0; from < payloads.size(); ++from) {
      std::int64_t in_row = 0;
      for (std::size_t to = 0; to < payloads.size(); ++to) {
        const std::int64_t rows = at(payloads, from).in_splits[to];
        PENTATRON_CHECK(at(payloads, to).out_splits[from] == rows, kComm,
                        "rank {} sends {} rows to rank {}, which expects {}", world_ranks()[from],
                        rows, world_ranks()[to], at(payloads, to).out_splits[from]);
        copy_bytes(at(payloads, to).out + out_row[to] * row_bytes,
                   at(payloads, from).in + in_row * row_bytes, rows * row_bytes);
        in_row += rows;
        out_row[to] += rows;
      }
    }
  }

  std::shared_ptr<threads::Meeting> meeting_;
};

class ThreadsBackend final : public Backend {
 public:
  ThreadsBackend(std::shared_ptr<threads::World> world, std::int64_t rank)
      : world_(std::move(world)), rank_(rank) {}

  std::string name() const override { return "threads"; }
  std::int64_t rank() const override { return rank_; }
  std::int64_t world_size() const override { return world_->size(); }
  std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                    const std::string& name) override {
    if (ranks.size() == 1) return make_local_group(name, ranks, rank_, world_->size());
    return std::make_unique<ThreadsGroup>(*world_, name, ranks, rank_);
  }
  void poison(const std::string& message) override { world_->poison(rank_, message); }
  void shutdown() override {}

 private:
  std::shared_ptr<threads::World> world_;
  std::int64_t rank_;
};

void run_rank(const std::shared_ptr<threads::World>& world, std::int64_t rank, int threads_per_rank,
              const std::function<void(Backend&)>& body, std::exception_ptr& error) {
  log::set_thread_label(fmt::format("rank {}", rank));
  try {
    tensor::set_up_rank_thread(threads_per_rank);
    ThreadsBackend backend(world, rank);
    body(backend);
  } catch (const std::exception& exception) {
    error = std::current_exception();
    world->poison(rank, exception.what());
  } catch (...) {
    error = std::current_exception();
    world->poison(rank, "an exception of unknown type");
  }
  world->leave(rank);
}

}  // namespace

void run_threads(const ThreadsOptions& options, const std::function<void(Backend&)>& body) {
  const auto world = std::make_shared<threads::World>(options.world_size, options.timeout);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(options.world_size));
  std::vector<std::thread> ranks;
  for (std::int64_t rank = 0; rank < options.world_size; ++rank) {
    try {
      ranks.emplace_back([&, rank] {
        run_rank(world, rank, options.threads_per_rank, body,
                 errors[static_cast<std::size_t>(rank)]);
      });
    } catch (const std::system_error& error) {
      world->poison(rank, fmt::format("cannot start its thread: {}", error.what()));
      break;
    }
  }
  for (std::thread& thread : ranks) thread.join();

  // The first poison is the cause; what the other ranks threw only reports it.
  if (const auto failure = world->failure()) {
    if (const auto& cause = errors[static_cast<std::size_t>(failure->rank)]) {
      std::rethrow_exception(cause);
    }
    PENTATRON_THROW(kComm, "rank {} failed: {}", failure->rank, failure->message);
  }
}

}  // namespace pentatron::comm

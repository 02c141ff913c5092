// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/checked_group.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/call_record.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/wait_at_end.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

Tensor bytes_tensor(const std::string& bytes) {
  Tensor t = tensor::empty({static_cast<std::int64_t>(bytes.size())}, DType::Byte);
  std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
  return t;
}

std::string_view text_of(const Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<std::size_t>(bytes.numel())};
}

// The words first, then what they are about.
class CheckedWork final : public Work {
 public:
  CheckedWork(WorkPtr words, std::function<void()> compare, WorkPtr real)
      : words_(std::move(words)), compare_(std::move(compare)), real_(std::move(real)) {}
  ~CheckedWork() override { wait_at_end_(*this); }
  void wait() override {
    if (const WorkPtr words = std::move(words_)) {
      words->wait();
      compare_();
    }
    real_->wait();
  }
  bool finished() override { return !words_ && real_->finished(); }

 private:
  WorkPtr words_;
  std::function<void()> compare_;
  WorkPtr real_;
  WaitAtEnd wait_at_end_;
};

class CheckedGroup final : public Group {
 public:
  CheckedGroup(std::unique_ptr<Group> real, std::unique_ptr<Group> host, CheckedDevices devices)
      : real_(std::move(real)), host_(std::move(host)), devices_(devices) {
    PENTATRON_CHECK(real_->world_ranks() == host_->world_ranks(), kInternal,
                    "group '{}' is checked over another one's members", real_->name());
  }

  const std::string& name() const override { return real_->name(); }
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  const std::vector<std::int64_t>& world_ranks() const override { return real_->world_ranks(); }

  WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    if (!checked(t)) return real_->all_reduce(std::move(t), op);
    auto words = tell({.text = fmt::format("all_reduce({}, {})", content_of(t), to_string(op))});
    return join(std::move(words), real_->all_reduce(std::move(t), op));
  }
  WorkPtr all_gather(Tensor out, Tensor in) override {
    if (!checked(in)) return real_->all_gather(std::move(out), std::move(in));
    auto words = tell({.text = fmt::format("all_gather({})", content_of(in))});
    return join(std::move(words), real_->all_gather(std::move(out), std::move(in)));
  }
  WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    if (!checked(in)) return real_->reduce_scatter(std::move(out), std::move(in), op);
    auto words =
        tell({.text = fmt::format("reduce_scatter({}, {})", content_of(in), to_string(op))});
    return join(std::move(words), real_->reduce_scatter(std::move(out), std::move(in), op));
  }
  WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                     std::vector<std::int64_t> in_splits) override {
    if (!checked(in)) {
      return real_->all_to_all(std::move(out), std::move(in), std::move(out_splits),
                               std::move(in_splits));
    }
    PENTATRON_CHECK(
        out_splits.size() == world_ranks().size() && in_splits.size() == out_splits.size(),
        kInternal, "group '{}', all_to_all: {} and {} splits for {} members", name(),
        out_splits.size(), in_splits.size(), size());
    auto words = tell({.text = fmt::format("all_to_all({})", tensor::dtype_name(in.scalar_type())),
                       .sent = in_splits,
                       .received = out_splits});
    return join(std::move(words), real_->all_to_all(std::move(out), std::move(in),
                                                    std::move(out_splits), std::move(in_splits)));
  }
  WorkPtr broadcast(Tensor t, int root) override {
    if (!checked(t)) return real_->broadcast(std::move(t), root);
    auto words = tell({.text = fmt::format("broadcast({}, root {})", content_of(t), root)});
    return join(std::move(words), real_->broadcast(std::move(t), root));
  }
  WorkPtr send(Tensor t, int peer) override {
    if (!checked(t)) return real_->send(std::move(t), peer);
    WorkPtr words = host_->send(bytes_tensor(encode_note(content_of(t))), peer);
    return std::make_unique<CheckedWork>(
        std::move(words), [] {}, real_->send(std::move(t), peer));
  }
  WorkPtr recv(Tensor t, int peer) override {
    if (!checked(t)) return real_->recv(std::move(t), peer);
    auto note = expect(t, peer);
    return join(std::move(note), real_->recv(std::move(t), peer));
  }
  WorkPtr recv_later(Tensor t, int peer) override {
    if (!checked(t)) return real_->recv_later(std::move(t), peer);
    auto note = expect(t, peer);
    return join(std::move(note), real_->recv_later(std::move(t), peer));
  }
  void connect(const std::vector<int>& send_to, const std::vector<int>& receive_from) override {
    real_->connect(send_to, receive_from);
  }
  void barrier() override {
    const Words words = tell({.text = "barrier()"});
    words.work->wait();
    words.compare();
    real_->barrier();
  }

 private:
  struct Words {
    WorkPtr work;
    std::function<void()> compare;
  };

  [[nodiscard]] bool checked(const Tensor& t) const {
    return devices_ == CheckedDevices::kAll || !t.is_cpu();
  }

  static WorkPtr join(Words words, WorkPtr real) {
    return std::make_unique<CheckedWork>(std::move(words.work), std::move(words.compare),
                                         std::move(real));
  }

  Words tell(CallRecord record) {
    record.number = calls_++;
    const Tensor mine = bytes_tensor(encode(record, size()));
    const Tensor all = tensor::empty({mine.numel() * size()}, DType::Byte);
    return {.work = host_->all_gather(all, mine), .compare = [this, all] {
              const std::string problem = disagreement(text_of(all), name(), world_ranks(), rank());
              PENTATRON_CHECK(problem.empty(), kComm, "{}", problem);
            }};
  }

  Words expect(const Tensor& t, int peer) {
    const Tensor note = tensor::empty({kNoteBytes}, DType::Byte);
    return {.work = host_->recv(note, peer),
            .compare = [this, note, peer, expected = content_of(t)] {
              const std::string problem = disagreement_of_note(text_of(note), expected);
              PENTATRON_CHECK(problem.empty(), kComm, "group '{}', rank {} to {}: {}", name(),
                              world_ranks()[static_cast<std::size_t>(peer)],
                              world_ranks()[static_cast<std::size_t>(rank())], problem);
            }};
  }

  std::unique_ptr<Group> real_;
  std::unique_ptr<Group> host_;
  CheckedDevices devices_;
  std::uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Group> make_checked_group(std::unique_ptr<Group> real, std::unique_ptr<Group> host,
                                          CheckedDevices devices) {
  return std::make_unique<CheckedGroup>(std::move(real), std::move(host), devices);
}

}  // namespace pentatron::comm

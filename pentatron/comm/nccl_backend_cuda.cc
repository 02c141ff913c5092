// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/nccl_backend.h"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/checked_group.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/nccl_lane.h"
#include "pentatron/comm/register_cuda.h"
#include "pentatron/tensor/device.h"

namespace pentatron::comm {
namespace {

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  PENTATRON_THROW(kInternal, "unknown reduction");
}

class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<Lane> lane, std::shared_ptr<LaneOp> op)
      : lane_(std::move(lane)), op_(std::move(op)), exceptions_(std::uncaught_exceptions()) {}

  ~NcclWork() override {
    // While an exception passes, the peers may never come; the lane's watch ends what hangs.
    if (!op_ || std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (const std::exception& error) {
      log::warn("an unfinished operation was dropped: {}", error.what());
    }
  }

  void wait() override {
    if (!op_) return;
    const auto op = std::move(op_);
    lane_->wait(*op);
    op->tensors.clear();
  }
  bool finished() override { return !op_ || lane_->finished(*op_); }

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<LaneOp> op_;
  int exceptions_;
};

class NcclGroup final : public GroupBase {
 public:
  // `unique`: the group's name and how often it was used before.
  NcclGroup(std::shared_ptr<NcclHub> hub, std::string name, std::vector<std::int64_t> ranks,
            std::string unique)
      : GroupBase(std::move(name), std::move(ranks), hub->options().rank,
                  hub->options().world_size),
        hub_(std::move(hub)),
        unique_(std::move(unique)),
        host_(hub_->gloo().make_group(world_ranks(), this->name())),
        exceptions_(std::uncaught_exceptions()) {}

  ~NcclGroup() override {
    const bool in_good_order = std::uncaught_exceptions() == exceptions_ && hub_->failure().empty();
    for (const auto& [key, lane] : lanes_) lane->close(in_good_order);
  }

  WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    if (t.is_cpu()) return host_->all_reduce(std::move(t), op);
    check("all_reduce", t);
    if (t.numel() == 0) return finished_work();
    void* const data = t.mutable_data_ptr();
    return post(collectives(), "all_reduce", {t},
                [data, count = count_of(t), type = type_of("all_reduce", t), op](
                    ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllReduce(data, data, count, type, nccl_op(op), comm, stream);
                });
  }

  WorkPtr all_gather(Tensor out, Tensor in) override {
    if (in.is_cpu()) return host_->all_gather(std::move(out), std::move(in));
    check("all_gather", out);
    check("all_gather", in);
    check_whole("all_gather", out, in);
    if (in.numel() == 0) return finished_work();
    return post(collectives(), "all_gather", {out, in},
                [to = out.mutable_data_ptr(), from = in.const_data_ptr(), bytes = in.nbytes()](
                    ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllGather(from, to, bytes, ncclInt8, comm, stream);
                });
  }

  WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    if (in.is_cpu()) return host_->reduce_scatter(std::move(out), std::move(in), op);
    check("reduce_scatter", out);
    check("reduce_scatter", in);
    check_whole("reduce_scatter", in, out);
    if (out.numel() == 0) return finished_work();
    return post(collectives(), "reduce_scatter", {out, in},
                [to = out.mutable_data_ptr(), from = in.const_data_ptr(), count = count_of(out),
                 type = type_of("reduce_scatter", in), op](ncclComm_t comm, cudaStream_t stream) {
                  return ncclReduceScatter(from, to, count, type, nccl_op(op), comm, stream);
                });
  }

  WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                     std::vector<std::int64_t> in_splits) override {
    if (in.is_cpu()) {
      return host_->all_to_all(std::move(out), std::move(in), std::move(out_splits),
                               std::move(in_splits));
    }
    check("all_to_all", out);
    check("all_to_all", in);
    const std::int64_t row_bytes = check_splits(out, in, out_splits, in_splits);
    return post(collectives(), "all_to_all", {out, in},
                [to = static_cast<char*>(out.mutable_data_ptr()),
                 from = static_cast<const char*>(in.const_data_ptr()), row_bytes,
                 out_rows = std::move(out_splits),
                 in_rows = std::move(in_splits)](ncclComm_t comm, cudaStream_t stream) {
                  return exchange(to, from, row_bytes, out_rows, in_rows, comm, stream);
                });
  }

  WorkPtr broadcast(Tensor t, int root) override {
    if (t.is_cpu()) return host_->broadcast(std::move(t), root);
    check("broadcast", t);
    check_member("broadcast", root);
    if (t.numel() == 0) return finished_work();
    return post(collectives(), "broadcast", {t},
                [data = t.mutable_data_ptr(), bytes = t.nbytes(), root](ncclComm_t comm,
                                                                        cudaStream_t stream) {
                  return ncclBroadcast(data, data, bytes, ncclInt8, root, comm, stream);
                });
  }

  WorkPtr send(Tensor t, int peer) override {
    if (t.is_cpu()) return host_->send(std::move(t), peer);
    check("send", t);
    check_peer("send", peer);
    if (t.numel() == 0) return finished_work();
    return post(
        pair(rank(), peer), fmt::format("send to rank {}", world_rank_of(peer)), {t},
        [data = t.const_data_ptr(), bytes = t.nbytes()](ncclComm_t comm, cudaStream_t stream) {
          return ncclSend(data, bytes, ncclInt8, 1, comm, stream);
        });
  }

  WorkPtr recv(Tensor t, int peer) override { return receive(std::move(t), peer, false); }
  WorkPtr recv_later(Tensor t, int peer) override { return receive(std::move(t), peer, true); }

  void connect(const std::vector<int>& send_to, const std::vector<int>& receive_from) override {
    std::vector<std::shared_ptr<Lane>> lanes;
    for (const int peer : send_to) lanes.push_back(pair(rank(), peer));
    for (const int peer : receive_from) lanes.push_back(pair(peer, rank()));
    for (const std::shared_ptr<Lane>& lane : lanes) lane->start_opening();
    for (const std::shared_ptr<Lane>& lane : lanes) lane->wait_open();
  }

  // The hosts meet; work on the GPUs may still be under way.
  void barrier() override { host_->barrier(); }

 private:
  WorkPtr receive(Tensor t, int peer, bool deferred) {
    if (t.is_cpu()) return host_->recv(std::move(t), peer);
    check("recv", t);
    check_peer("recv", peer);
    if (t.numel() == 0) return finished_work();
    return post(
        pair(peer, rank()), fmt::format("recv from rank {}", world_rank_of(peer)), {t},
        [data = t.mutable_data_ptr(), bytes = t.nbytes()](ncclComm_t comm, cudaStream_t stream) {
          return ncclRecv(data, bytes, ncclInt8, 0, comm, stream);
        },
        deferred);
  }

  static std::size_t count_of(const Tensor& t) { return static_cast<std::size_t>(t.numel()); }

  static ncclResult_t exchange(char* to, const char* from, std::int64_t row_bytes,
                               const std::vector<std::int64_t>& out_rows,
                               const std::vector<std::int64_t>& in_rows, ncclComm_t comm,
                               cudaStream_t stream) {
    ncclResult_t result = ncclGroupStart();
    for (std::size_t peer = 0; peer < in_rows.size() && result == ncclSuccess; ++peer) {
      const auto out_bytes = static_cast<std::size_t>(out_rows[peer] * row_bytes);
      const auto in_bytes = static_cast<std::size_t>(in_rows[peer] * row_bytes);
      const int member = static_cast<int>(peer);
      if (in_bytes > 0) result = ncclSend(from, in_bytes, ncclInt8, member, comm, stream);
      if (out_bytes > 0 && result == ncclSuccess) {
        result = ncclRecv(to, out_bytes, ncclInt8, member, comm, stream);
      }
      from += in_bytes;
      to += out_bytes;
    }
    const ncclResult_t end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
  }

  [[nodiscard]] std::int64_t world_rank_of(int member) const {
    return world_ranks()[static_cast<std::size_t>(member)];
  }

  void check(std::string_view op, const Tensor& t) const {
    check_tensor(op, t);
    PENTATRON_CHECK(t.device() == hub_->device(), kInternal,
                    "{}: {} is on {}, this rank's GPU is {}", where(op), tensor::describe(t),
                    t.device().str(), hub_->device().str());
  }

  [[nodiscard]] ncclDataType_t type_of(std::string_view op, const Tensor& t) const {
    switch (t.scalar_type()) {
      case DType::Double:
        return ncclDouble;
      case DType::Float:
        return ncclFloat;
      case DType::BFloat16:
        return ncclBfloat16;
      case DType::Half:
        return ncclHalf;
      case DType::Long:
        return ncclInt64;
      case DType::Int:
        return ncclInt32;
      case DType::Char:
        return ncclInt8;
      case DType::Byte:
        return ncclUint8;
      default:
        PENTATRON_THROW(kUnsupported, "{}: NCCL does not reduce {}", where(op),
                        tensor::describe(t));
    }
  }

  std::shared_ptr<Lane> lane(const std::string& kind, int lane_rank, int lane_size, bool is_pair) {
    std::shared_ptr<Lane>& entry = lanes_[kind];
    if (!entry) {
      entry = std::make_shared<Lane>(hub_, fmt::format("group '{}'/{}", unique_, kind), lane_rank,
                                     lane_size, is_pair);
      hub_->add(entry);
    }
    return entry;
  }
  std::shared_ptr<Lane> collectives() { return lane("collectives", rank(), size(), false); }
  // Data from one member to another: its own communicator of two.
  std::shared_ptr<Lane> pair(int from, int to) {
    return lane(fmt::format("{}-{}", world_rank_of(from), world_rank_of(to)),
                rank() == from ? 0 : 1, 2, true);
  }

  // Numbered by the lane; collectives also for who is asked later which members have not come.
  WorkPtr post(const std::shared_ptr<Lane>& lane, std::string_view op, std::vector<Tensor> tensors,
               std::function<ncclResult_t(ncclComm_t, cudaStream_t)> call, bool deferred = false) {
    const std::int64_t number = calls_[lane.get()]++;
    std::function<std::string()> missing;
    if (lane == collectives()) {
      const std::string key = "nccl/" + unique_;
      hub_->gloo().note_calls(key, number + 1);
      missing = [hub = hub_.get(), key, number, ranks = world_ranks()] {
        return hub->gloo().missing(key, number + 1, ranks);
      };
    }
    return std::make_unique<NcclWork>(
        lane, lane->post(where(fmt::format("{} #{}", op, number)), std::move(tensors),
                         std::move(call), deferred, std::move(missing)));
  }

  std::shared_ptr<NcclHub> hub_;
  std::string unique_;
  std::unique_ptr<Group> host_;  // CPU tensors
  int exceptions_;
  std::map<std::string, std::shared_ptr<Lane>> lanes_;
  std::map<const Lane*, std::int64_t> calls_;  // operations posted, by lane
};

// The identity of a GPU in all machines.
std::string gpu_identity(Device device) {
  cudaDeviceProp properties{};
  const cudaError_t code = cudaGetDeviceProperties(&properties, device.index());
  PENTATRON_CHECK(code == cudaSuccess, kCuda, "{}: {}", device.str(), cudaGetErrorString(code));
  return {properties.uuid.bytes, sizeof(properties.uuid.bytes)};
}

class NcclBackend final : public Backend, public PhaseListener {
 public:
  explicit NcclBackend(const NcclOptions& options) : hub_(std::make_shared<NcclHub>(options)) {
    refuse_shared_gpus();
  }
  ~NcclBackend() override { hub_->stop(); }

  std::string name() const override { return "nccl"; }
  std::int64_t rank() const override { return hub_->options().rank; }
  std::int64_t world_size() const override { return hub_->options().world_size; }
  std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                    const std::string& name) override {
    if (ranks.size() == 1) return make_local_group(name, ranks, rank(), world_size());
    auto group = std::make_unique<NcclGroup>(hub_, name, ranks,
                                             fmt::format("{}#{}", name, generations_[name]++));
    if (!hub_->options().check_collectives) return group;
    return make_checked_group(std::move(group), hub_->gloo().make_group(ranks, name + "/calls"),
                              CheckedDevices::kGpus);
  }
  void poison(const std::string& message) override { hub_->fail(message); }
  void note_phase(std::string_view phase) override { hub_->gloo().note_phase(phase); }
  void shutdown() override {
    if (const std::string reason = hub_->failure(); !reason.empty()) {
      PENTATRON_THROW(kComm, "{}", reason);
    }
    tensor::synchronize(hub_->device());
    hub_->gloo().shutdown();
    hub_->stop();
  }

 private:
  // NCCL would refuse it too, later and in other words.
  void refuse_shared_gpus() {
    std::vector<std::int64_t> everyone;
    for (std::int64_t r = 0; r < world_size(); ++r) everyone.push_back(r);
    if (everyone.size() == 1) return;
    const auto group = hub_->gloo().make_group(everyone, "GPUs");
    const auto all = all_gather_bytes(*group, gpu_identity(hub_->device()));
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        PENTATRON_CHECK(all[a] != all[b], kConfig,
                        "ranks {} and {} have the same GPU ({} on rank {}): start one rank a GPU "
                        "(LOCAL_RANK, CUDA_VISIBLE_DEVICES)",
                        b, a, hub_->device().str(), rank());
      }
    }
  }

  std::shared_ptr<NcclHub> hub_;
  std::map<std::string, std::int64_t> generations_;  // times a name was used before
};

std::unique_ptr<Backend> make(const NcclOptions& options) {
  PENTATRON_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
                  kConfig, "nccl backend: rank {} is outside a world of {} (RANK, WORLD_SIZE)",
                  options.rank, options.world_size);
  return std::make_unique<NcclBackend>(options);
}

}  // namespace

void register_cuda_comm() { register_nccl_backend(&make); }

}  // namespace pentatron::comm

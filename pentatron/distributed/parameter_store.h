// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/distributed/buffer_allocator.h"
#include "pentatron/distributed/flat_layout.h"
#include "pentatron/distributed/piece.h"
#include "pentatron/distributed/store_options.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/tensor/weight_grad_queue.h"

namespace pentatron::distributed {

// The trainable parameters of one grid: their memory, the reduction of their gradients, the gather
// of what is sharded. Listens to unit events; yields the pieces that this rank updates. The
// parameters' storage (policy.parameter) and gradients (policy.main_grad) become views of flat
// buffers; main parameters are in policy.main_parameter; gradients travel in policy.reduction.
//
// Gradients are brought to their final sums first over each part's partial_grad_axes and the ends
// of a tied weight, then over the ranks of shard_over and replicate_over (or the other way round:
// sums are linear). A step is begin_step, micro-batches with their events (begin_last_micro_batch
// before the backward of the last), finish_step, then an update of pieces, then publish.
//
// A model on two grids (dense, expert) has a store for each. Parameters that do not fit the
// options, or two tied parts of one name: kInternal. A peer's failure: kComm.
class ParameterStore final : public ops::UnitEventSink, public nn::ParameterHost {
 public:
  ParameterStore(const std::vector<nn::Unit>& units, comm::ParallelContext& context,
                 const StoreOptions& options, const PrecisionPolicy& policy, Device device = kCpu,
                 std::unique_ptr<BufferAllocator> allocator = make_default_allocator());
  ~ParameterStore() override;
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Listens to the queue too (beside others) and takes no unit for done while it has work there.
  // Needed where the queue postpones; the queue must live as long as events come.
  void listen_to(WeightGradQueue& queue);
  void set_timers(Timers* timers);  // null: none

  // Gradients.
  void begin_step();  // the first write of each parameter overwrites
  // Final sums of the units [first_unit, end_unit) may start: the last micro-batch of their stage
  // begins its backward.
  void begin_last_micro_batch(int first_unit, int end_unit);
  void finish_step();  // all sums are final; a gradient that nothing wrote is zero
  void on_forward_begin(int unit) override;
  void on_forward_end(int unit) override;
  void on_backward_begin(int unit) override;
  void on_backward_end(int unit) override;
  void weights_done(int unit);

  // Parameters. Fills every trainable parameter (initial values) without more than a unit of them
  // at a time where they are sharded; main parameters follow.
  void fill(const std::function<void(nn::Parameter&)>& fill);
  // Main parameters were changed: parameters := rounded main parameters, on every rank.
  void publish();
  // Main parameters := parameters.
  void reset_main();
  // What is derived of parameters on the host (their fp8 forms) is out of date: for who changes
  // them by recorded work of the device.
  void tell_values_changed();
  // Ends what is under way and frees whole copies of sharded parameters that were used outside of
  // units. After it no parameter is being written.
  void settle();
  void provide_data(nn::Parameter& parameter) override;
  void provide_grad(nn::Parameter& parameter) override;

  // What this rank updates: everything, or its shards. In the order of the flat buffer.
  [[nodiscard]] std::vector<Piece>& pieces() { return pieces_; }
  // Memory for these pieces beside them (zeroed, on the host or the device as Piece::on_host says,
  // each view as aligned as its piece): 1-D views in the order given.
  [[nodiscard]] std::vector<Tensor> allocate_for(std::span<const std::size_t> pieces, DType dtype);
  // Pieces on the host, by number: each batch in turn is awaited, updated and sent.
  [[nodiscard]] const std::vector<std::vector<std::size_t>>& host_batches() const {
    return host_batches_;
  }
  // Starts the copies of gradients to where updates read them; nothing where they lie there.
  void fetch_gradients();
  void await_gradients(std::size_t host_batch);  // the host waits for a batch's
  // Main parameters of a batch were updated: starts the copies to the parameters. publish() waits
  // for them, or makes the copies that were not started.
  void send_parameters(std::size_t host_batch);
  [[nodiscard]] Device device() const;  // of parameters and gradients
  [[nodiscard]] Device state_device() const { return state_device_; }

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  [[nodiscard]] const StoreOptions& options() const;
  [[nodiscard]] bool sharded() const { return options().sharding != Sharding::kNothing; }
  [[nodiscard]] comm::Group& shard_group() const;
  [[nodiscard]] comm::Group& reduction_group() const;  // over shard_over and replicate_over
  // Whether this rank's pieces count: of the ranks that update the same, one does.
  [[nodiscard]] bool owns_pieces() const;
  // Bytes of main parameters and state that this rank allocated for itself.
  [[nodiscard]] std::int64_t state_bytes() const { return state_bytes_; }

 private:
  struct Inner;
  struct HostCopies;  // those under way
  void make_pieces();
  void copy_to_parameters();

  std::unique_ptr<BufferAllocator> allocator_;
  PrecisionPolicy policy_;
  FlatLayout layout_;
  Device state_device_;
  std::unique_ptr<Inner> inner_;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> flat_begins_;  // of the pieces
  std::vector<std::vector<std::size_t>> host_batches_;
  std::int64_t state_bytes_ = 0;
  WeightGradQueue* queue_ = nullptr;
  std::shared_ptr<const WeightGradQueue::Listener> listening_;
};

}  // namespace pentatron::distributed

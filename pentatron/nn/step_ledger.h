// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/nn/step_scalars.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::nn {

// A number that a module adds to while a step runs. The module declares it in its constructor
// (Module::declare_scalar); modules that declare the same name share one entry.
struct LedgerEntry {
  std::string name;
  ScalarKind kind = ScalarKind::kSum;  // kResult: set once by the engine, of all ranks already
  // Of one micro-batch: what a loss is divided by, as an fp64 scalar on the batch's device. Ranks
  // of one data-parallel group have other batches, all others the same ones. kLoss only.
  std::function<Tensor(const Batch&)> count = {};
  // Weight of a loss in what is trained on; what is logged is without it.
  double coefficient = 1.0;
  // Above 1, kSum and kMax only: a vector, for Module::commit; it is logged nowhere.
  std::int64_t size = 1;
  bool on_request = false;  // kept only in runs that ask for it by name
};

// The main loss of a language model: a sum over tokens, by the sum of their loss mask.
[[nodiscard]] LedgerEntry token_loss(std::string name);

// Whose a value is that a rank adds to a sum.
enum class Share {
  kOwn,         // this rank's alone: its rows, its layer
  kTensorCopy,  // every tensor-parallel rank adds the same; counted once
};

// The numbers of a step in device memory, fp64: named sums and maxima, each loss with a count and a
// seed of its own. All of it stays where it is from step to step, so that a recorded step writes
// and reads the same memory. The owner of the step reduces counts() over the ranks with other
// batches before the first forward, and sums() and maxima() over the world at the end: one
// all-reduce for each. Every rank has the same entries in the same order; a rank without the module
// that declared a loss has no count for it until maxima() is reduced. An unknown name or another
// kind of entry: kInternal. Modules do not call it but their StepContext, which is silent in
// recompute.
class StepLedger final {
 public:
  // `counts_copies`: this rank is the one of its tensor-parallel group whose copies are counted.
  StepLedger(std::vector<LedgerEntry> entries, DType loss_dtype, Device device, bool counts_copies);

  [[nodiscard]] const std::vector<LedgerEntry>& entries() const { return entries_; }
  [[nodiscard]] bool has(std::string_view name) const;

  // A step in the order of its calls. All entries at zero (maxima at -infinity), counts of these
  // micro-batches.
  void begin(const std::vector<Batch>& batches);
  [[nodiscard]] const Tensor& counts() const { return counts_; }  // [losses]
  // With the reduced counts: coefficient * loss_scale / count, 0 where nothing counts.
  void set_seeds(const Tensor& loss_scale);
  [[nodiscard]] bool has_seeds() const { return seeds_.defined(); }
  [[nodiscard]] Tensor seed_of(std::string_view loss) const;  // scalar in the loss dtype
  // `value`: [size] or a scalar in any dtype.
  void add_sum(std::string_view name, const Tensor& value, Share share = Share::kOwn);
  void add_mean(std::string_view name, const Tensor& sum, const Tensor& count,
                Share share = Share::kOwn);
  void add_max(std::string_view name, const Tensor& value);
  // The maximum so far, raised in place by those who compute it on the fly; undefined where the
  // entry is not kept.
  [[nodiscard]] Tensor max_slot(std::string_view name) const;
  [[nodiscard]] const Tensor& sums() const { return sums_; }      // 1-D, may be empty
  [[nodiscard]] const Tensor& maxima() const { return maxima_; }  // 1-D: maxima, and the counts
  // After the reductions. A loss's sum over its count, and all of them with their coefficients:
  // what was trained on.
  [[nodiscard]] Tensor objective() const;
  [[nodiscard]] Tensor sum_of(std::string_view name) const;  // [size], or a scalar
  void set_result(std::string_view name, const Tensor& value);
  // Waits for the device once. Losses and means without any count are left out, as are vectors
  // and results that were not set; a loss's count is told as "<name> count".
  [[nodiscard]] StepScalars read() const;

 private:
  struct Slot {
    std::int64_t begin = 0;  // in the tensor of its kind; of a loss: among the losses
    bool set = false;        // results
  };
  [[nodiscard]] std::size_t index_of(std::string_view name, ScalarKind kind) const;
  [[nodiscard]] Tensor inverse_counts() const;
  void add(std::int64_t begin, std::int64_t size, const Tensor& value, Share share);

  std::vector<LedgerEntry> entries_;
  std::vector<Slot> slots_;
  DType loss_dtype_;
  bool counts_copies_;
  Tensor sums_;    // the losses' first
  Tensor maxima_;  // maxima, then counts_
  Tensor results_;
  Tensor counts_;  // [losses], as the two below
  Tensor coefficients_;
  Tensor seeds_;
};

// What a committed step was, on the device.
class StepOutcome final {
 public:
  StepOutcome(const StepLedger& ledger, Tensor skipped)
      : ledger_(ledger), skipped_(std::move(skipped)) {}

  // Of the whole step, over all ranks: as StepLedger has it.
  [[nodiscard]] Tensor sum_of(std::string_view name) const { return ledger_.sum_of(name); }
  [[nodiscard]] Tensor max_of(std::string_view name) const { return ledger_.max_slot(name); }
  // target := value, unless the step was left out. Same shapes; the host does not wait.
  void update(const Tensor& target, const Tensor& value) const;

 private:
  const StepLedger& ledger_;
  Tensor skipped_;  // fp64 scalar: not 0 when no update was made
};

}  // namespace pentatron::nn

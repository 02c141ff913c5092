// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/step_ledger.h"

#include <limits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::nn {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// 1-D tensors of one device one after another on the host, with one wait.
std::vector<double> on_host(const std::vector<Tensor>& parts) {
  const Tensor joined = tensor::cat(parts, 0).cpu();
  const auto* begin = joined.const_data_ptr<double>();
  return {begin, begin + joined.numel()};
}

}  // namespace

LedgerEntry token_loss(std::string name) {
  return {.name = std::move(name), .kind = ScalarKind::kLoss, .count = [](const Batch& batch) {
            return batch.loss_mask().sum(kAccumulationDType);
          }};
}

StepLedger::StepLedger(std::vector<LedgerEntry> entries, DType loss_dtype, Device device,
                       bool counts_copies)
    : entries_(std::move(entries)),
      slots_(entries_.size()),
      loss_dtype_(loss_dtype),
      counts_copies_(counts_copies) {
  std::vector<double> coefficients;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].kind != ScalarKind::kLoss) continue;
    slots_[i].begin = std::ssize(coefficients);
    coefficients.push_back(entries_[i].coefficient);
  }
  const std::int64_t num_losses = std::ssize(coefficients);
  std::int64_t num_sums = num_losses, num_maxima = 0, num_results = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const LedgerEntry& entry = entries_[i];
    PENTATRON_CHECK(entry.kind != ScalarKind::kCount, kInternal,
                    "'{}': a loss brings its count with it", entry.name);
    PENTATRON_CHECK(entry.size >= 1 && (entry.size == 1 || entry.kind == ScalarKind::kSum ||
                                        entry.kind == ScalarKind::kMax),
                    kInternal, "'{}' has {} elements: only sums and maxima are vectors", entry.name,
                    entry.size);
    std::int64_t& end = entry.kind == ScalarKind::kMax      ? num_maxima
                        : entry.kind == ScalarKind::kResult ? num_results
                                                            : num_sums;
    if (entry.kind == ScalarKind::kLoss) continue;
    slots_[i].begin = end;
    end += entry.kind == ScalarKind::kMean ? 2 : entry.size;
  }
  const auto zeros = [&](std::int64_t size) {
    return tensor::zeros({size}, kAccumulationDType, device);
  };
  sums_ = zeros(num_sums);
  maxima_ = zeros(num_maxima + num_losses);
  results_ = zeros(num_results);
  counts_ = maxima_.narrow(0, num_maxima, num_losses);
  coefficients_ = tensor::from_vector(coefficients).to(device);
}

bool StepLedger::has(std::string_view name) const {
  for (const LedgerEntry& entry : entries_) {
    if (entry.name == name) return true;
  }
  return false;
}

std::size_t StepLedger::index_of(std::string_view name, ScalarKind kind) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name != name) continue;
    PENTATRON_CHECK(entries_[i].kind == kind, kInternal, "'{}' is another kind of entry", name);
    return i;
  }
  PENTATRON_THROW(kInternal, "no module declared '{}' for the step's ledger (declare_scalar)",
                  name);
}

void StepLedger::begin(const std::vector<Batch>& batches) {
  const tensor::NoGrad no_grad;
  sums_.zero_();
  maxima_.fill_(kLowest);
  counts_.zero_();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    slots_[i].set = false;
    if (!entries_[i].count) continue;
    Tensor slot = counts_.select(0, slots_[i].begin);
    for (const Batch& batch : batches) slot.add_(entries_[i].count(batch));
  }
}

// No count at all: no loss and no gradient, not a quotient of zeros.
Tensor StepLedger::inverse_counts() const {
  return counts_.reciprocal().masked_fill_(counts_.eq(0), 0.0);
}

void StepLedger::set_seeds(const Tensor& loss_scale) {
  const tensor::NoGrad no_grad;
  seeds_ = inverse_counts().mul(coefficients_).mul(loss_scale).to(loss_dtype_);
}

Tensor StepLedger::seed_of(std::string_view loss) const {
  PENTATRON_CHECK(seeds_.defined(), kInternal, "'{}' is asked for its seed before set_seeds", loss);
  return seeds_.select(0, slots_[index_of(loss, ScalarKind::kLoss)].begin);
}

void StepLedger::add(std::int64_t begin, std::int64_t size, const Tensor& value, Share share) {
  if (share == Share::kTensorCopy && !counts_copies_) return;
  sums_.narrow(0, begin, size).add_(value.detach().reshape({-1}));
}

void StepLedger::add_sum(std::string_view name, const Tensor& value, Share share) {
  const tensor::NoGrad no_grad;
  std::size_t index = 0;
  while (index < entries_.size() && entries_[index].name != name) ++index;
  const bool loss = index < entries_.size() && entries_[index].kind == ScalarKind::kLoss;
  index = index_of(name, loss ? ScalarKind::kLoss : ScalarKind::kSum);
  PENTATRON_CHECK(value.numel() == entries_[index].size, kInternal,
                  "'{}' was declared with {} elements, {} came", name, entries_[index].size,
                  value.numel());
  add(slots_[index].begin, entries_[index].size, value, share);
}

void StepLedger::add_mean(std::string_view name, const Tensor& sum, const Tensor& count,
                          Share share) {
  const tensor::NoGrad no_grad;
  const std::int64_t begin = slots_[index_of(name, ScalarKind::kMean)].begin;
  add(begin, 1, sum, share);
  add(begin + 1, 1, count, share);
}

void StepLedger::add_max(std::string_view name, const Tensor& value) {
  const tensor::NoGrad no_grad;
  const Tensor slot = max_slot(name);
  slot.copy_(slot.maximum(value.detach().reshape(slot.sizes()).to(kAccumulationDType)));
}

Tensor StepLedger::max_slot(std::string_view name) const {
  if (!has(name)) return {};
  const std::size_t index = index_of(name, ScalarKind::kMax);
  const std::int64_t begin = slots_[index].begin;
  return entries_[index].size > 1 ? maxima_.narrow(0, begin, entries_[index].size)
                                  : maxima_.select(0, begin);
}

Tensor StepLedger::objective() const {
  const tensor::NoGrad no_grad;
  return sums_.narrow(0, 0, counts_.numel()).mul(inverse_counts()).mul(coefficients_).sum();
}

Tensor StepLedger::sum_of(std::string_view name) const {
  const std::size_t index = index_of(name, ScalarKind::kSum);
  const std::int64_t begin = slots_[index].begin;
  return entries_[index].size > 1 ? sums_.narrow(0, begin, entries_[index].size)
                                  : sums_.select(0, begin);
}

void StepLedger::set_result(std::string_view name, const Tensor& value) {
  const tensor::NoGrad no_grad;
  Slot& slot = slots_[index_of(name, ScalarKind::kResult)];
  results_.select(0, slot.begin).copy_(value.detach().reshape({}));
  slot.set = true;
}

StepScalars StepLedger::read() const {
  const std::vector<double> values = on_host({sums_, maxima_, results_});
  const auto at = [&](std::int64_t index) { return values[static_cast<std::size_t>(index)]; };
  const std::int64_t maxima = sums_.numel(), results = maxima + maxima_.numel(),
                     counts = results - counts_.numel();
  StepScalars scalars;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const LedgerEntry& entry = entries_[i];
    const Slot& slot = slots_[i];
    const auto mean = [&](double count) {
      if (count != 0) scalars.set(entry.name, at(slot.begin) * (1.0 / count), entry.kind);
    };
    switch (entry.kind) {
      case ScalarKind::kLoss:
        mean(at(counts + slot.begin));
        scalars.set(entry.name + " count", at(counts + slot.begin), ScalarKind::kCount);
        break;
      case ScalarKind::kMean:
        mean(at(slot.begin + 1));
        break;
      case ScalarKind::kSum:
        if (entry.size == 1) scalars.set(entry.name, at(slot.begin), entry.kind);
        break;
      case ScalarKind::kMax:
        if (entry.size == 1) scalars.set(entry.name, at(maxima + slot.begin), entry.kind);
        break;
      case ScalarKind::kCount:
        break;  // of a loss
      case ScalarKind::kResult:
        if (slot.set) scalars.set(entry.name, at(results + slot.begin), entry.kind);
        break;
    }
  }
  return scalars;
}

void StepOutcome::update(const Tensor& target, const Tensor& value) const {
  const tensor::NoGrad no_grad;
  PENTATRON_CHECK(target.sizes() == value.sizes(), kInternal, "a buffer {} is given {}",
                  tensor::describe(target), tensor::describe(value));
  target.copy_(tensor::where(skipped_.eq(0), value.to(target.scalar_type()), target));
}

}  // namespace pentatron::nn

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/batch_tensors.h"

#include "pentatron/base/error.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron {
namespace {

class Collector final {
 public:
  void add(const Tensor& t) {
    if (t.defined()) tensors_.push_back(t);
  }
  void add(const AttentionSegmentsPtr& plan) {
    if (plan == nullptr) return;
    for (const Tensor* t : {&plan->q_boundaries, &plan->k_boundaries, &plan->q_sample_ids,
                            &plan->q_places, &plan->k_places}) {
      add(*t);
    }
  }
  void add(const SequenceLayout& layout) {
    for (const Tensor* t : {&layout.positions(), &layout.sample_ids(), &layout.token_index()}) {
      add(*t);
    }
    add(layout.attention());
    if (layout.cut() != nullptr) add(*layout.cut());
  }
  [[nodiscard]] std::vector<Tensor> take() { return std::move(tensors_); }

 private:
  void add(const GatheredRows& rows) {
    add(rows.layout);
    add(rows.from_ranks);
    add(rows.to_ranks);
  }
  void add(const SequenceCut& cut) {
    add(cut.whole);
    add(cut.rows);
    for (const AttentionSegmentsPtr& half : cut.halves_with_whole) add(half);
    for (const std::vector<RingBlock>& step : cut.ring) {
      for (const RingBlock& block : step) add(block.rows);
    }
    if (cut.inner != nullptr) add(*cut.inner);
  }

  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<Tensor> tensors_of(const Batch& batch) {
  Collector all;
  for (const auto& [name, layout] : batch.sequences) all.add(layout);
  for (const auto& [name, values] : batch.fields) all.add(values);
  return all.take();
}

void copy_tensors(const Batch& to, const Batch& from) {
  const std::vector<Tensor> targets = tensors_of(to);
  const std::vector<Tensor> sources = tensors_of(from);
  PENTATRON_CHECK(targets.size() == sources.size(), kInternal,
                  "a batch of {} tensors is copied into one of {}", sources.size(), targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    PENTATRON_CHECK(targets[i].sizes() == sources[i].sizes() &&
                        targets[i].scalar_type() == sources[i].scalar_type(),
                    kInternal, "tensor {} of a batch does not have the shape it was recorded with",
                    i);
    targets[i].copy_(sources[i]);
  }
}

}  // namespace pentatron

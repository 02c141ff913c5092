// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/nn/hidden_states.h"
#include "pentatron/nn/step_ledger.h"
#include "pentatron/ops/scope.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::ops {
class UnitEventSink;
}
namespace pentatron::parallel_layers {
struct Distillation;  // distilled_loss.h
}

namespace pentatron::nn {

enum class Phase { kTrain, kRecompute, kEvaluate, kPrefill, kDecode };

// What a model returns behind its last layer. Teacher's logits are what losses are made of: in the
// logits dtype and with the padding columns of this rank.
enum class StageOutput { kLoss, kLogits, kTeacherLogits };

class KvCache;  // declared in nn/kv_cache.h

// Everything a forward needs besides its input. One object per micro-batch forward; passed by
// reference, never stored in a module.
struct StepContext {
  const Batch& batch;
  const PrecisionPolicy& policy;
  std::uint64_t seed = 0;  // of the run; dropout sites mix it with their names
  Phase phase = Phase::kTrain;
  StageOutput output = StageOutput::kLoss;
  ops::Scope scope = {};  // queue of weight gradients, the unit that runs (set by run_unit()),
                          // policy of saved activations
  ops::UnitEventSink* events = nullptr;  // null: no events
  int first_unit = 0;                    // index on this rank of the stage's first unit (nn/unit.h)
  KvCache* kv_cache = nullptr;           // prefill and decode
  StepLedger* ledger = nullptr;          // null: nothing is recorded
  HiddenStates* hidden = nullptr;        // null: none are taken
  const parallel_layers::Distillation* distillation = nullptr;  // null: the loss is the labels'

  [[nodiscard]] bool training() const {
    return phase == Phase::kTrain || phase == Phase::kRecompute;
  }

  // Modules offer what they make under their name. What recompute makes again was offered already.
  [[nodiscard]] bool takes(std::string_view name) const {
    return hidden != nullptr && phase != Phase::kRecompute && hidden->wants(name);
  }
  void offer(std::string_view name, const Tensor& x) const {
    if (takes(name)) hidden->put(name, x);
  }

  // Modules record their numbers through these. Recompute records nothing: the first forward has.
  [[nodiscard]] bool records() const { return ledger != nullptr && phase != Phase::kRecompute; }
  void add_sum(std::string_view name, const Tensor& value, Share share = Share::kOwn) const {
    if (records()) ledger->add_sum(name, value, share);
  }
  void add_mean(std::string_view name, const Tensor& sum, const Tensor& count,
                Share share = Share::kOwn) const {
    if (records()) ledger->add_mean(name, sum, count, share);
  }
  void add_max(std::string_view name, const Tensor& value) const {
    if (records()) ledger->add_max(name, value);
  }
  [[nodiscard]] Tensor max_slot(std::string_view name) const {
    return records() ? ledger->max_slot(name) : Tensor();
  }
};

}  // namespace pentatron::nn

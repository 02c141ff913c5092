// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/unit_events.h"

#include <memory>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"

namespace pentatron::ops {
namespace {

// Passes the gradients on and tells the sink.
class UnitEventBackward final : public Backward {
 public:
  UnitEventBackward(int unit, UnitEventSink& sink, bool is_begin)
      : unit_(unit), sink_(&sink), is_begin_(is_begin) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (is_begin_) {
      sink_->on_backward_end(unit_);
    } else {
      sink_->on_backward_begin(unit_);
    }
    return output_grads;
  }
  void release() override {}
  std::string_view name() const override { return is_begin_ ? "UnitBegin" : "UnitEnd"; }

 private:
  int unit_;
  UnitEventSink* sink_;
  bool is_begin_;
};

std::vector<Tensor> border(const std::vector<Tensor>& tensors, int unit, UnitEventSink& sink,
                           bool is_begin) {
  PENTATRON_CHECK(!tensors.empty(), kInternal, "no tensor crosses this border of unit {}", unit);
  if (!needs_backward(tensors, /*force=*/true)) return tensors;
  std::vector<Tensor> same;
  same.reserve(tensors.size());
  for (const Tensor& t : tensors) same.push_back(t.variable_data());
  attach(same, tensors, std::make_unique<UnitEventBackward>(unit, sink, is_begin), /*force=*/true);
  return same;
}

}  // namespace

std::vector<Tensor> unit_begin(const std::vector<Tensor>& inputs, int unit, UnitEventSink& sink) {
  sink.on_forward_begin(unit);
  return border(inputs, unit, sink, /*is_begin=*/true);
}

std::vector<Tensor> unit_end(const std::vector<Tensor>& outputs, int unit, UnitEventSink& sink) {
  std::vector<Tensor> same = border(outputs, unit, sink, /*is_begin=*/false);
  sink.on_forward_end(unit);
  return same;
}

}  // namespace pentatron::ops

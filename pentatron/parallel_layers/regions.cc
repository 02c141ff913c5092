// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/regions.h"

#include <functional>
#include <numeric>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

namespace pentatron::parallel_layers {
namespace {

using Map = std::function<Tensor(const Tensor&)>;

// Backward of a region: one map of one gradient.
class RegionBackward final : public ops::Backward {
 public:
  RegionBackward(std::string_view name, Map map) : name_(name), map_(std::move(map)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    PENTATRON_CHECK(output_grads.at(0).defined(), kInternal,
                    "{}: no gradient came, the other ranks would wait for this one", name_);
    return {map_(output_grads[0])};
  }
  void release() override {}
  std::string_view name() const override { return name_; }

 private:
  std::string_view name_;
  Map map_;
};

class SplitColumnsBackward final : public ops::Backward {
 public:
  SplitColumnsBackward(std::int64_t rows, std::vector<std::int64_t> widths, std::int64_t inner,
                       DType dtype, Device device)
      : rows_(rows), widths_(std::move(widths)), inner_(inner), dtype_(dtype), device_(device) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    for (std::size_t i = 0; i < widths_.size(); ++i) {
      if (!output_grads[i].defined()) {
        output_grads[i] = tensor::zeros({rows_, widths_[i] / inner_, inner_}, dtype_, device_);
      }
    }
    if (joined_already(output_grads)) return {whole(output_grads[0])};
    return {tensor::cat(output_grads, 1).view({rows_, columns()})};
  }
  void release() override {}
  std::string_view name() const override { return "split_columns"; }

 private:
  [[nodiscard]] std::int64_t columns() const {
    return std::accumulate(widths_.begin(), widths_.end(), std::int64_t{0});
  }
  // Whether the gradients were written side by side into one matrix of our size.
  [[nodiscard]] bool joined_already(const std::vector<Tensor>& grads) const {
    const Tensor& first = grads[0];
    if (rows_ < 2 || !first.has_storage()) return false;
    std::int64_t offset = first.storage_offset();
    for (std::size_t i = 0; i < widths_.size(); ++i) {
      const Tensor& grad = grads[i];
      if (!grad.has_storage() || !grad.storage().is_alias_of(first.storage()) ||
          grad.scalar_type() != dtype_ || grad.stride(0) != columns() || grad.stride(1) != inner_ ||
          grad.stride(2) != 1 || grad.storage_offset() != offset) {
        return false;
      }
      offset += widths_[i];
    }
    return true;
  }
  [[nodiscard]] Tensor whole(const Tensor& first) const {
    return first.as_strided({rows_, columns()}, {columns(), 1}, first.storage_offset());
  }

  std::int64_t rows_;
  std::vector<std::int64_t> widths_;
  std::int64_t inner_;
  DType dtype_;
  Device device_;
};

Tensor through(const Tensor& x, std::string_view name, const Map& forward, Map backward) {
  Tensor out;
  {
    tensor::NoGrad no_grad;
    out = forward(x.variable_data());
  }
  return ops::attach(std::move(out), {x},
                     std::make_unique<RegionBackward>(name, std::move(backward)));
}

// The maps. A gradient may be shared with other branches of the graph and an activation with other
// users: neither is changed in place.
Map identity() {
  return [](const Tensor& t) { return t; };
}
Map summed(comm::Group& group) {
  return [&group](const Tensor& t) {
    Tensor sum = t.clone(at::MemoryFormat::Contiguous);
    comm::all_reduce(group, sum);
    return sum;
  };
}
Map gathered(comm::Group& group) {
  return [&group](const Tensor& t) { return comm::all_gather(group, t.contiguous()); };
}
Map scattered_sum(comm::Group& group) {
  return [&group](const Tensor& t) { return comm::reduce_scatter(group, t.contiguous()); };
}

bool alone(const LeafContext& context) { return context.size("tp") == 1; }

}  // namespace

Tensor reduce_from_tensor(const LeafContext& context, const Tensor& x) {
  if (alone(context)) return x;
  return through(x, "reduce_from_tensor", summed(context.group("tp")), identity());
}

Tensor reduce_scatter_sequence(const LeafContext& context, const Tensor& x) {
  if (alone(context)) return x;
  comm::Group& group = context.group("tp");
  static_cast<void>(context.local_rows(x.size(0)));  // rows that cannot be shared: one clear error
  return through(x, "reduce_scatter_sequence", scattered_sum(group), gathered(group));
}

Tensor enter_split(const LeafContext& context, const Tensor& x) {
  if (alone(context)) return x;
  comm::Group& group = context.group("tp");
  const bool share_rows = context.layout().sequence_parallel;
  const Map own = [](const Tensor& t) { return t.clone(at::MemoryFormat::Contiguous); };
  return through(x, "enter_split", share_rows ? gathered(group) : own,
                 share_rows ? scattered_sum(group) : summed(group));
}

Tensor leave_split(const LeafContext& context, const Tensor& x) {
  return context.layout().sequence_parallel ? reduce_scatter_sequence(context, x)
                                            : reduce_from_tensor(context, x);
}

Tensor gather_row_values(const LeafContext& context, const Tensor& values_r) {
  if (alone(context) || !context.layout().sequence_parallel) return values_r;
  const std::int64_t rows = values_r.size(0), begin = context.coordinate("tp") * rows;
  return through(values_r, "gather_row_values", gathered(context.group("tp")),
                 [begin, rows](const Tensor& t) {
                   return t.narrow(0, begin, rows).clone(at::MemoryFormat::Contiguous);
                 });
}

std::vector<Tensor> split_columns(const Tensor& x_tw, const std::vector<std::int64_t>& widths,
                                  std::int64_t inner) {
  std::vector<Tensor> outputs;
  {
    tensor::NoGrad no_grad;
    std::int64_t begin = 0;
    for (const std::int64_t width : widths) {
      outputs.push_back(tensor::split_last(tensor::narrowed(x_tw, 1, begin, width), inner));
      begin += width;
    }
    PENTATRON_CHECK(begin == x_tw.size(1), kInternal, "{} columns cannot be split into {}",
                    x_tw.size(1), begin);
  }
  ops::attach(outputs, {x_tw},
              std::make_unique<SplitColumnsBackward>(x_tw.size(0), widths, inner,
                                                     x_tw.scalar_type(), x_tw.device()));
  return outputs;
}

}  // namespace pentatron::parallel_layers

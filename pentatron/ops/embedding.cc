// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/embedding.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

class EmbeddingBackward final : public Backward {
 public:
  EmbeddingBackward(const Tensor& ids_t, WeightRef& weight_vh, std::int64_t row_begin,
                    std::int64_t rows)
      : ids_(ids_t), weight_(&weight_vh), row_begin_(row_begin), rows_(rows) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const GradSlot slot = weight_->grad_slot();
    const Tensor ids_t = ids_.get();
    const Tensor dy_th = output_grads[0].defined() ? output_grads[0].contiguous() : Tensor();
    PENTATRON_CHECK(slot.buffer.dim() == 2 && slot.buffer.size(0) >= rows_ &&
                        (!dy_th.defined() || slot.buffer.size(1) == dy_th.size(1)),
                    kInternal, "embedding gradient: slot {} for {} rows of {}",
                    tensor::describe(slot.buffer), rows_, tensor::describe(dy_th));
    op_table(ids_t.device()).embedding_backward(ids_t, dy_th, row_begin_, rows_, slot);
    return {};
  }
  void release() override { ids_.release(); }
  std::string_view name() const override { return "Embedding"; }

 private:
  Saved ids_;
  WeightRef* weight_;
  std::int64_t row_begin_;
  std::int64_t rows_;
};

}  // namespace

Tensor embedding(const Tensor& ids_t, WeightRef& weight_vh, std::int64_t row_begin,
                 std::int64_t rows) {
  Tensor out_th;
  {
    const tensor::NoGrad no_grad;
    const Tensor table = weight_vh.forward_weight().contiguous();
    PENTATRON_CHECK(ids_t.scalar_type() == DType::Long && ids_t.dim() == 1 &&
                        ids_t.is_contiguous() && table.dim() == 2 && rows >= 0 &&
                        rows <= table.size(0),
                    kInternal, "embedding: ids {} in {} rows of the table {}",
                    tensor::describe(ids_t), rows, tensor::describe(table));
    out_th = op_table(ids_t.device()).embedding_forward(ids_t, table, row_begin, rows);
  }
  if (!needs_backward({}, weight_vh.trainable())) return out_th;
  return attach(std::move(out_th), {},
                std::make_unique<EmbeddingBackward>(ids_t, weight_vh, row_begin, rows),
                /*force=*/true);
}

}  // namespace pentatron::ops

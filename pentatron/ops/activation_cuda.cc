// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/activation.h"

#include "pentatron/base/error.h"
#include "pentatron/kernels/random.h"
#include "pentatron/kernels/reduce.h"
#include "pentatron/kernels/rotary.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/known_largest.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {

using tensor::check_launch;
using tensor::kernel_type;
using tensor::read;
using tensor::stream_of;
using tensor::write;

Tensor cuda::activation_forward(Activation kind, const Tensor& x) {
  Tensor y = tensor::empty(x.sizes(), x.scalar_type(), x.device());
  check_launch(kernels::activation_forward(kind, kernel_type(x.scalar_type()), read(x), write(y),
                                           x.numel(), stream_of(x)),
               "activation_forward");
  return y;
}

Tensor cuda::activation_backward(Activation kind, const Tensor& x, const Tensor& dy) {
  Tensor dx = tensor::empty(x.sizes(), x.scalar_type(), x.device());
  check_launch(kernels::activation_backward(kind, kernel_type(x.scalar_type()), read(x), read(dy),
                                            write(dx), x.numel(), stream_of(x)),
               "activation_backward");
  return dx;
}

ActivationGradient cuda::activation_bias_backward(Activation kind, const Tensor& x_to,
                                                  const Tensor& dy_to) {
  const std::int64_t columns = x_to.size(-1), rows = columns == 0 ? 0 : x_to.numel() / columns;
  ActivationGradient gradient{
      .dx_to = tensor::empty(x_to.sizes(), x_to.scalar_type(), x_to.device()),
      .partials_po = tensor::empty({kernels::column_sum_partials(rows), columns},
                                   compute_dtype(x_to.scalar_type()), x_to.device())};
  check_launch(kernels::activation_bias_backward(kind, kernel_type(x_to.scalar_type()), read(x_to),
                                                 read(dy_to), write(gradient.dx_to),
                                                 write(gradient.partials_po), rows, columns,
                                                 stream_of(x_to)),
               "activation_bias_backward");
  return gradient;
}

void cuda::add_partial_sums(const Tensor& partials_po, const GradSlot& slot) {
  PENTATRON_CHECK(slot.buffer.is_contiguous(), kInternal, "bias gradient: the slot {} has gaps",
                  tensor::describe(slot.buffer));
  check_launch(
      kernels::sum_partials(kernel_type(partials_po.scalar_type()) == kernels::Type::kDouble,
                            read(partials_po), partials_po.size(0), partials_po.size(1),
                            {.data = write(slot.buffer),
                             .type = kernel_type(slot.buffer.scalar_type()),
                             .accumulate = slot.accumulate},
                            stream_of(partials_po)),
      "add_partial_sums");
}

Tensor cuda::gated_forward(const Gate& gate, const Tensor& x_t2f, bool largest) {
  Shape shape = tensor::shape_of(x_t2f);
  shape.back() /= 2;
  Tensor y_tf = tensor::empty(shape, x_t2f.scalar_type(), x_t2f.device());
  const std::int64_t f = shape.back(), num_rows = f == 0 ? 0 : y_tf.numel() / f;
  const Tensor most = tensor::place_of_largest(largest, y_tf);
  check_launch(
      kernels::gated_forward(gate, kernel_type(x_t2f.scalar_type()), read(x_t2f), write(y_tf),
                             num_rows, f, static_cast<float*>(write(most)), stream_of(x_t2f)),
      "gated_forward");
  tensor::note_largest(y_tf, most);
  return y_tf;
}

Tensor cuda::gated_backward(const Gate& gate, const Tensor& x_t2f, const Tensor& dy_tf,
                            bool largest) {
  Tensor dx_t2f = tensor::empty(x_t2f.sizes(), x_t2f.scalar_type(), x_t2f.device());
  const std::int64_t f = dy_tf.size(-1), num_rows = f == 0 ? 0 : dy_tf.numel() / f;
  const Tensor most = tensor::place_of_largest(largest, dx_t2f);
  check_launch(kernels::gated_backward(gate, kernel_type(x_t2f.scalar_type()), read(x_t2f),
                                       read(dy_tf), write(dx_t2f), num_rows, f,
                                       static_cast<float*>(write(most)), stream_of(x_t2f)),
               "gated_backward");
  tensor::note_largest(dx_t2f, most);
  return dx_t2f;
}

Tensor cuda::dropout(const Tensor& x_th, const DropoutKey& key, const Tensor& sample_ids_t,
                     const Tensor& token_index_t) {
  PENTATRON_CHECK(
      sample_ids_t.is_contiguous() && token_index_t.is_contiguous() &&
          token_index_t.sizes() == sample_ids_t.sizes() && sample_ids_t.device() == x_th.device() &&
          token_index_t.device() == x_th.device(),
      kInternal, "dropout wants contiguous ids and indices on {}, got {} and {}",
      x_th.device().str(), tensor::describe(sample_ids_t), tensor::describe(token_index_t));
  Tensor y_th = tensor::empty(x_th.sizes(), x_th.scalar_type(), x_th.device());
  check_launch(kernels::dropout(kernel_type(x_th.scalar_type()), read(x_th), write(y_th),
                                {.site = key.site.key,
                                 .threshold = tensor::dropout_threshold(key.p),
                                 .channel_begin = key.channel_begin},
                                1.0 / (1.0 - key.p), sample_ids_t.const_data_ptr<std::int64_t>(),
                                token_index_t.const_data_ptr<std::int64_t>(), x_th.size(0),
                                x_th.size(1), stream_of(x_th)),
               "dropout");
  return y_th;
}

Tensor cuda::rotate(const Tensor& x_tnd, const Tensor& cos_pr, const Tensor& sin_pr,
                    const Tensor& positions_t, double direction, bool interleaved) {
  PENTATRON_CHECK(cos_pr.size(0) > 0 || x_tnd.size(0) == 0, kData,
                  "the rotary table has no positions (--max-position-embeddings, --seq-length)");
  const DType computed = compute_dtype(x_tnd.scalar_type());
  const Tensor cos = cos_pr.to(computed), sin = sin_pr.to(computed);
  Tensor y_tnd = tensor::empty(x_tnd.sizes(), x_tnd.scalar_type(), x_tnd.device());
  check_launch(
      kernels::rotate(kernel_type(x_tnd.scalar_type()),
                      {.tokens = x_tnd.size(0),
                       .heads = x_tnd.size(1),
                       .head_dim = x_tnd.size(2),
                       .half = cos.size(1),
                       .max_position = cos.size(0),
                       .token_stride = x_tnd.stride(0),
                       .head_stride = x_tnd.stride(1),
                       .interleaved = interleaved},
                      read(x_tnd), read(cos), read(sin), positions_t.const_data_ptr<std::int64_t>(),
                      direction, write(y_tnd), stream_of(x_tnd)),
      "rotate");
  return y_tnd;
}

void cuda::column_sums(const Tensor& dy_to, const GradSlot& slot) {
  PENTATRON_CHECK(slot.buffer.is_contiguous(), kInternal, "bias gradient: the slot {} has gaps",
                  tensor::describe(slot.buffer));
  const std::int64_t num_rows = dy_to.size(0), columns = dy_to.size(1);
  const DType wide = compute_dtype(dy_to.scalar_type(), slot.buffer.scalar_type());
  const Tensor partials =
      tensor::empty({kernels::column_sum_partials(num_rows), columns}, wide, dy_to.device());
  check_launch(
      kernels::column_sums(kernel_type(dy_to.scalar_type()), read(dy_to), num_rows, columns,
                           {.data = write(slot.buffer),
                            .type = kernel_type(slot.buffer.scalar_type()),
                            .accumulate = slot.accumulate},
                           write(partials), stream_of(dy_to)),
      "column_sums");
}

}  // namespace pentatron::ops

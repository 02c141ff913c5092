// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/views.h"

#include <c10/util/SmallVector.h>

#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::tensor {
namespace {

Tensor view_of(const Tensor& x, IntList sizes, IntList strides, std::int64_t offset) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(x.storage()),
                                                   x.key_set(), x.dtype());
  impl->set_sizes_and_strides(sizes, strides, offset);
  return Tensor(std::move(impl));
}

}  // namespace

Tensor transposed(const Tensor& x_mn) {
  PENTATRON_CHECK(x_mn.dim() == 2, kInternal, "transposed: {} is no matrix", describe(x_mn));
  return view_of(x_mn, {x_mn.size(1), x_mn.size(0)}, {x_mn.stride(1), x_mn.stride(0)},
                 x_mn.storage_offset());
}

Tensor narrowed(const Tensor& x, std::int64_t dim, std::int64_t begin, std::int64_t length) {
  PENTATRON_CHECK(dim >= 0 && dim < x.dim() && begin >= 0 && length >= 0 && begin <= x.size(dim) &&
                      length <= x.size(dim) - begin,
                  kInternal, "narrowed: [{}, +{}) of dimension {} of {}", begin, length, dim,
                  describe(x));
  c10::SmallVector<std::int64_t, 5> sizes(x.sizes().begin(), x.sizes().end());
  sizes[static_cast<std::size_t>(dim)] = length;
  return view_of(x, sizes, x.strides(), x.storage_offset() + begin * x.stride(dim));
}

Tensor split_last(const Tensor& x_mn, std::int64_t inner) {
  PENTATRON_CHECK(x_mn.dim() == 2 && inner > 0 && x_mn.size(1) % inner == 0, kInternal,
                  "split_last: {} into columns of {}", describe(x_mn), inner);
  return view_of(x_mn, {x_mn.size(0), x_mn.size(1) / inner, inner},
                 {x_mn.stride(0), inner * x_mn.stride(1), x_mn.stride(1)}, x_mn.storage_offset());
}

Tensor selected(const Tensor& x, std::int64_t index) {
  PENTATRON_CHECK(x.dim() > 0 && index >= 0 && index < x.size(0), kInternal,
                  "selected: row {} of {}", index, describe(x));
  return view_of(x, x.sizes().slice(1), x.strides().slice(1),
                 x.storage_offset() + index * x.stride(0));
}

}  // namespace pentatron::tensor

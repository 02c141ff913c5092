// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/known_largest.h"

#include <c10/core/TensorImpl.h>

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

// The library's place for what a backend knows of a tensor.
struct LargestNote final : c10::BackendMeta {
  Tensor largest;
  const void* memory = nullptr;
  std::int64_t elements = 0;
  std::int64_t version = 0;  // counts writes
};

}  // namespace

Tensor place_of_largest(bool asked, const Tensor& t) {
  return asked && t.numel() > 0 ? empty({}, DType::Float, t.device()) : Tensor();
}

void note_largest(const Tensor& t, Tensor largest) {
  if (!largest.defined()) return;
  PENTATRON_CHECK(largest.numel() == 1 && largest.scalar_type() == DType::Float &&
                      largest.device() == t.device(),
                  kInternal, "the largest magnitude of {} must be an fp32 scalar beside it",
                  describe(t));
  auto note = c10::make_intrusive<LargestNote>();
  note->largest = std::move(largest);
  note->memory = t.const_data_ptr();
  note->elements = t.numel();
  note->version = t._version();
  t.unsafeGetTensorImpl()->set_backend_meta(std::move(note));
}

Tensor noted_largest(const Tensor& t) {
  const auto* note = dynamic_cast<const LargestNote*>(t.unsafeGetTensorImpl()->get_backend_meta());
  const bool holds = note != nullptr && note->memory == t.const_data_ptr() &&
                     note->elements == t.numel() && note->version == t._version();
  return holds ? note->largest : Tensor();
}

}  // namespace pentatron::tensor

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// The largest magnitude of a tensor, where the kernel that made it found it on the way, so that a
// cast to fp8 need not read the tensor twice.
namespace pentatron::tensor {

// An fp32 scalar beside t, for a kernel to write max |t| to; undefined where that is not asked or t
// has no elements.
[[nodiscard]] Tensor place_of_largest(bool asked, const Tensor& t);
// `largest`: max |t| as an fp32 scalar on t's device, or undefined: nothing is noted. It goes where
// this tensor object goes, copies and detached ones too, not to views.
void note_largest(const Tensor& t, Tensor largest);
// Undefined where nobody noted it, or t was written to since by an operation of the library.
[[nodiscard]] Tensor noted_largest(const Tensor& t);

}  // namespace pentatron::tensor

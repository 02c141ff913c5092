// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "pentatron/ops/testing.h"

namespace pentatron::ops::testing {

using Tensors = std::vector<Tensor>;

// A differentiable op with a plain fp64 reference of library methods (differentiated by the
// library).
struct OpCase {
  std::string name;
  std::vector<Shape> inputs;
  std::vector<Shape> weights;
  std::function<Tensor(const Tensors&, std::vector<TestWeight>&)> op;
  std::function<Tensor(const Tensors&, const Tensors&)> reference;
};
inline std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.name; }

inline Tensor ids(const std::vector<std::int64_t>& values, Device device) {
  return tensor::from_vector(values).to(device);
}

inline constexpr std::uint64_t kSiteKey = 0x123456789abcdef0;

inline Device device_of(const Tensors& x) { return x[0].device(); }

}  // namespace pentatron::ops::testing

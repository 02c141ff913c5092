// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/checkpoint/reader.h"
#include "pentatron/config/config.h"
#include "pentatron/families/name_map.h"

namespace pentatron::conversion {

// The adapters in a checkpoint, computed with in fp64.
class CheckpointAdapters final {
 public:
  // `model`: with adapters. Both outlive this.
  CheckpointAdapters(checkpoint::CheckpointReader& reader, const config::ModelConfig& model)
      : reader_(reader), model_(model) {}

  // Whether the weight, a part's name, has an adapter.
  [[nodiscard]] bool adapts(const std::string& weight) const;
  // A [rank, inputs], rows [begin, begin + count) of B [outputs, rank], and those of the magnitude.
  [[nodiscard]] Tensor down(const families::Part& weight) const;
  [[nodiscard]] Tensor up(const families::Part& weight, std::int64_t begin,
                          std::int64_t count) const;
  [[nodiscard]] Tensor magnitude(const families::Part& weight, std::int64_t begin,
                                 std::int64_t count) const;
  // Rows of the weight, [count, inputs] in fp64, from `begin` on, become those of the weight that
  // does alone what both do: W + scale B A, with DoRA of the magnitude's length.
  [[nodiscard]] Tensor merged(const families::Part& weight, std::int64_t begin,
                              const Tensor& rows) const;

 private:
  [[nodiscard]] Tensor read(const std::string& name, const Shape& shape, std::int64_t begin,
                            std::int64_t count) const;

  checkpoint::CheckpointReader& reader_;
  const config::ModelConfig& model_;
};

}  // namespace pentatron::conversion

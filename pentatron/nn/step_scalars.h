// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::nn {

// What a number of a step is, and so how micro-batches, ranks and iterations are joined in it.
enum class ScalarKind {
  kLoss,    // sum over micro-batches and ranks, divided by a count known before the first forward
  kMean,    // sum divided by a sum of counts
  kSum,     // sum over micro-batches and ranks
  kMax,     // maximum of them
  kCount,   // what a loss is divided by
  kResult,  // of the whole step already: norms, rates, flags
};

struct StepScalar {
  std::string name;  // as the iteration's line prints it: "lm loss"
  double value = 0;
  ScalarKind kind = ScalarKind::kResult;
};

// The numbers of one step on the host, in the order in which they came. The one list that screen,
// metrics file and TensorBoard are written from.
class StepScalars final {
 public:
  // Replaces the value of that name, or appends it.
  void set(std::string_view name, double value, ScalarKind kind = ScalarKind::kResult);
  [[nodiscard]] std::optional<double> find(std::string_view name) const;
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }

 private:
  std::vector<StepScalar> values_;
};

}  // namespace pentatron::nn

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/sgd.h"

namespace pentatron::optimizer {
namespace {

class Sgd final : public UpdateRule {
 public:
  Sgd(const config::OptimizerConfig& config, const WidthScaling& scaling)
      : scaling_(scaling), momentum_(config.sgd_momentum) {}

  [[nodiscard]] std::vector<std::string_view> states() const override {
    if (momentum_ == 0) return {};
    return {"momentum"};
  }
  void update(std::span<distributed::Piece* const> pieces,
              const ops::AdamScalars& scalars) override {
    ops::sgd_step(segments_of(pieces, scaling_), scalars, momentum_, /*weight_decay=*/1.0);
  }

 private:
  WidthScaling scaling_;
  double momentum_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const config::OptimizerConfig& config,
                                     const WidthScaling& scaling) {
  return std::make_unique<Sgd>(config, scaling);
}

}  // namespace pentatron::optimizer

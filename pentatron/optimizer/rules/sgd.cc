// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/sgd.h"

namespace pentatron::optimizer {
namespace {

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const config::OptimizerConfig& config) : momentum_(config.sgd_momentum) {}

  [[nodiscard]] std::vector<std::string_view> states() const override {
    if (momentum_ == 0) return {};
    return {"momentum"};
  }
  void update(std::span<distributed::Piece* const> pieces,
              const ops::AdamScalars& scalars) override {
    ops::sgd_step(segments_of(pieces), scalars, momentum_, /*weight_decay=*/1.0);
  }

 private:
  double momentum_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const config::OptimizerConfig& config) {
  return std::make_unique<Sgd>(config);
}

}  // namespace pentatron::optimizer

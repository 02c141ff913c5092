// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/adamw.h"

namespace pentatron::optimizer {
namespace {

class AdamW final : public UpdateRule {
 public:
  AdamW(const config::OptimizerConfig& config, const WidthScaling& scaling)
      : scaling_(scaling),
        options_{.beta1 = config.adam_beta1,
                 .beta2 = config.adam_beta2,
                 .eps = config.adam_eps,
                 .weight_decay = 1.0} {}

  [[nodiscard]] std::vector<std::string_view> states() const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  void update(std::span<distributed::Piece* const> pieces,
              const ops::AdamScalars& scalars) override {
    ops::adamw_step(segments_of(pieces, scaling_), scalars, options_);
  }

 private:
  WidthScaling scaling_;
  ops::AdamOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const config::OptimizerConfig& config,
                                       const WidthScaling& scaling) {
  return std::make_unique<AdamW>(config, scaling);
}

}  // namespace pentatron::optimizer

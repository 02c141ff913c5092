// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/adamw.h"

#include <algorithm>
#include <string>

#include "pentatron/base/philox.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

constexpr std::int64_t kFullWidth = 4;  // bytes: what is narrower is rounded with care

class AdamW final : public UpdateRule {
 public:
  AdamW(const config::OptimizerConfig& config, const WidthScaling& scaling, std::uint64_t seed)
      : scaling_(scaling),
        seed_(seed),
        options_{.beta1 = config.adam_beta1,
                 .beta2 = config.adam_beta2,
                 .eps = config.adam_eps,
                 .weight_decay = 1.0} {}

  [[nodiscard]] std::vector<std::string_view> states() const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  void update(std::span<distributed::Piece* const> pieces,
              const ops::AdamScalars& scalars) override {
    const std::vector<ops::UpdateSegment> segments = segments_of(pieces, scaling_);
    if (pieces.empty() || !is_narrow(*pieces[0])) {
      ops::adamw_step(segments, scalars, options_);
      return;
    }
    std::vector<ops::NarrowSegment> narrow;
    narrow.reserve(segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      narrow.push_back({.update = segments[i],
                        .place = place_of(*pieces[i]),
                        .streams = {.param = stream("param", *pieces[i]),
                                    .first = stream("exp_avg", *pieces[i]),
                                    .second = stream("exp_avg_sq", *pieces[i])}});
    }
    ops::narrow_adamw_step(narrow, scalars, options_, seed_);
  }

 private:
  static bool is_narrow(const distributed::Piece& piece) {
    const auto narrow = [](const Tensor& t) {
      return tensor::item_bytes(t.scalar_type()) < kFullWidth;
    };
    return narrow(piece.main) || std::any_of(piece.state.begin(), piece.state.end(), narrow);
  }
  // Of a state's draws: the same in every layout.
  static std::uint32_t stream(const char* kind, const distributed::Piece& piece) {
    return static_cast<std::uint32_t>(fnv1a64(kind + ("/" + piece.part->name)));
  }

  WidthScaling scaling_;
  std::uint64_t seed_;
  ops::AdamOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const config::OptimizerConfig& config,
                                       const WidthScaling& scaling, std::uint64_t seed) {
  return std::make_unique<AdamW>(config, scaling, seed);
}

}  // namespace pentatron::optimizer

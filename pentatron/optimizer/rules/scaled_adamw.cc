// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/scaled_adamw.h"

#include <map>
#include <utility>

#include "pentatron/optimizer/rules/adamw.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using distributed::Piece;

constexpr std::size_t kNumMoments = 2;
constexpr DType kMoment = DType::Float;  // in which updates compute them
constexpr DType kBits = DType::Int;      // of one of those
constexpr std::int64_t kMantissaBits = 23;
constexpr std::int64_t kExponentBias = 127;
// Of the smallest scale: quotients of subnormal numbers must stay finite.
constexpr std::int64_t kLeastExponent = -100;

// How a dtype is filled: the exponent of the largest magnitude, and its own bits of mantissa.
struct Range {
  std::int64_t exponent;
  std::int64_t mantissa;
};
bool is_scaled(DType dtype) { return dtype == DType::Half || dtype == DType::Float8_e4m3fn; }
Range range_of(DType dtype) {
  return dtype == DType::Half ? Range{.exponent = 14, .mantissa = 10}
                              : Range{.exponent = 7, .mantissa = 3};
}

// Powers of two for these largest magnitudes, on their device. A magnitude is rounded to the
// dtype's mantissa first, so that what was kept has the same scale again.
Tensor scales_of(const Tensor& maxima_n, const Range& range) {
  const std::int64_t half = std::int64_t{1} << (kMantissaBits - range.mantissa - 1);
  const Tensor exponent =
      maxima_n.view(kBits).add(half).__rshift__(kMantissaBits).sub(kExponentBias);
  return exponent.sub(range.exponent)
      .clamp_min(kLeastExponent)
      .add(kExponentBias)
      .__lshift__(kMantissaBits)
      .view(kMoment);
}

class ScaledAdamW final : public UpdateRule {
 public:
  ScaledAdamW(const config::OptimizerConfig& config, const WidthScaling& scaling,
              std::uint64_t seed, ScaleSharing sharing)
      : adamw_(make_adamw(config, scaling, seed)), sharing_(std::move(sharing)) {
    for (const std::string& part : sharing_.parts) {
      index_.emplace(part, static_cast<std::int64_t>(index_.size()));
    }
  }

  [[nodiscard]] std::vector<std::string_view> states() const override { return adamw_->states(); }

  void prepare(std::span<Piece* const> pieces) override {
    pieces_.assign(pieces.begin(), pieces.end());
    scales_sn_ = tensor::ones({kNumMoments, static_cast<std::int64_t>(index_.size())}, kMoment,
                              sharing_.device);
  }

  void update(std::span<Piece* const> pieces, const ops::AdamScalars& scalars) override {
    loaded_.clear();
    keep(pieces, [&](const Piece& piece, bool for_good) {
      Piece wide = piece;
      for (std::size_t s = 0; s < kNumMoments; ++s) {
        if (is_scaled(piece.state[s].scalar_type())) {
          wide.state[s] = moment(piece, s);
        } else if (!for_good) {
          wide.state[s] = piece.state[s].clone();
        }
      }
      if (!for_good) wide.main = piece.main.clone();
      Piece* one = &wide;
      adamw_->update({&one, 1}, scalars);
      return wide.state;
    });
  }

  [[nodiscard]] Tensor stored_state(const Piece& piece, std::size_t state) override {
    if (!is_scaled(piece.state[state].scalar_type())) return piece.state[state];
    return loaded_[{&piece, state}] = moment(piece, state);
  }

  void take_stored() override {
    keep(pieces_, [&](const Piece& piece, bool /*for_good*/) {
      std::vector<Tensor> moments = piece.state;
      for (std::size_t s = 0; s < kNumMoments; ++s) {
        if (!is_scaled(piece.state[s].scalar_type())) continue;
        const auto found = loaded_.find({&piece, s});
        moments[s] = found != loaded_.end() ? found->second : moment(piece, s);
      }
      return moments;
    });
    loaded_.clear();
  }

 private:
  [[nodiscard]] std::int64_t number(const Piece& piece) const {
    return index_.at(piece.part->name);
  }
  static Tensor of_part(const Tensor& values_sn, std::size_t state, std::int64_t part) {
    return values_sn.select(0, static_cast<std::int64_t>(state)).select(0, part);
  }
  [[nodiscard]] Tensor moment(const Piece& piece, std::size_t state) const {
    return piece.state[state].to(kMoment).mul(of_part(scales_sn_, state, number(piece)));
  }

  // moments(piece, for_good) gives a piece's new ones; called once for the largest magnitudes, when
  // nothing may change, and once more to keep what it gives.
  template <typename Moments>
  void keep(std::span<Piece* const> pieces, const Moments& moments) {
    const Tensor maxima_sn = tensor::zeros(scales_sn_.sizes(), kMoment, scales_sn_.device());
    for (const Piece* piece : pieces) {
      const std::vector<Tensor> trial = moments(*piece, /*for_good=*/false);
      for (std::size_t s = 0; s < kNumMoments; ++s) {
        const Tensor largest = of_part(maxima_sn, s, number(*piece));
        largest.copy_(largest.maximum(trial[s].abs().max()));
      }
    }
    // A rank without pieces takes part.
    if (sharing_.group != nullptr) {
      comm::all_reduce(*sharing_.group, maxima_sn, comm::ReduceOp::kMax);
    }
    if (pieces.empty()) return;
    std::vector<Tensor> scales;
    for (std::size_t s = 0; s < kNumMoments; ++s) {
      scales.push_back(scales_of(maxima_sn.select(0, static_cast<std::int64_t>(s)),
                                 range_of(pieces[0]->state[s].scalar_type())));
    }
    const Tensor scales_sn = tensor::stack(scales, 0);
    for (Piece* piece : pieces) {
      const std::vector<Tensor> kept = moments(*piece, /*for_good=*/true);
      for (std::size_t s = 0; s < kNumMoments; ++s) {
        if (!is_scaled(piece->state[s].scalar_type())) continue;
        piece->state[s].copy_(kept[s].div(of_part(scales_sn, s, number(*piece))));
      }
    }
    scales_sn_.copy_(scales_sn);
  }

  std::unique_ptr<UpdateRule> adamw_;
  ScaleSharing sharing_;
  std::map<std::string, std::int64_t> index_;
  std::vector<Piece*> pieces_;
  Tensor scales_sn_;                                               // [moments, parts]
  std::map<std::pair<const Piece*, std::size_t>, Tensor> loaded_;  // what a load writes into
};

}  // namespace

bool has_scaled_moments(const config::OptimizerConfig& config) {
  if (!config.use_precision_aware_optimizer) return false;
  const auto scaled = [](const std::string& dtype) { return dtype == "fp16" || dtype == "fp8"; };
  return scaled(config.exp_avg_dtype) || scaled(config.exp_avg_sq_dtype);
}

std::unique_ptr<UpdateRule> make_scaled_adamw(const config::OptimizerConfig& config,
                                              const WidthScaling& scaling, std::uint64_t seed,
                                              ScaleSharing sharing) {
  return std::make_unique<ScaledAdamW>(config, scaling, seed, std::move(sharing));
}

}  // namespace pentatron::optimizer

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/adapter_form.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// The low-rank adapters of one linear leaf (AdapterForm), each on one named part of its weight. It
// runs the leaf's product itself, so that the sum over the ranks is one for both. All parts read
// one dropout mask, keyed by the leaf's name, sample, token and global input channel.
class Adapter final : public nn::Module {
 public:
  // Null where nothing is planned for the leaf `name`, whose weight and bias (null: none) these
  // are; they outlive the adapter.
  [[nodiscard]] static std::unique_ptr<Adapter> make(const LeafContext& context,
                                                     const nn::ParameterPlan& plan,
                                                     const std::string& name,
                                                     const AdapterForm& form, nn::Parameter& weight,
                                                     nn::Parameter* bias);

  // As split_linear.h's maps of these names. The weight split by outputs, the ranks share A and
  // have rows of B: what is gathered, and summed in backward, is `rank` wide. Split by inputs, they
  // have columns of A and share B, and the products are added before the ranks' are summed.
  [[nodiscard]] Tensor split_outputs(const Tensor& x, nn::StepContext& step);
  [[nodiscard]] Tensor split_inputs(const Tensor& x_ti, nn::StepContext& step);

 private:
  // One adapted part.
  struct Piece {
    std::size_t part = 0;  // of the weight
    nn::Parameter* up = nullptr;
    nn::Parameter* magnitude = nullptr;
  };
  struct Products;

  Adapter(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
          const AdapterForm& form, nn::Parameter& weight, nn::Parameter* bias);

  [[nodiscard]] bool drops(const nn::StepContext& step) const;
  [[nodiscard]] Tensor dropped(const Tensor& x, bool of_local_rows, std::int64_t channel_begin,
                               const nn::StepContext& step) const;
  // B's products side by side, [t, local outputs]; zero for a part without adapter.
  [[nodiscard]] Tensor up_products(const Tensor& low, const nn::StepContext& step) const;
  // What the leaf gives, without bias.
  [[nodiscard]] Tensor combined(const Products& products, nn::StepContext& step);
  // |W + scale B A| of the local rows of an adapted part; of a weight that is split by inputs
  // summed over the ranks. Without graph.
  [[nodiscard]] Tensor lengths(std::size_t piece, DType dtype);
  [[nodiscard]] Tensor with_bias(const Tensor& y, const nn::StepContext& step) const;

  LeafContext context_;
  std::string site_;
  AdapterForm form_;
  bool splits_inputs_;
  nn::Parameter& weight_;
  nn::Parameter* bias_;
  nn::Parameter* down_;  // all parts' A, one below the other
  std::vector<Piece> pieces_;
};

}  // namespace pentatron::parallel_layers

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/residual_dropout.h"

#include <utility>

#include "pentatron/ops/activation.h"

namespace pentatron::parallel_layers {

ResidualDropout::ResidualDropout(const LeafContext& context, double probability, std::string site)
    : context_(context), probability_(probability), site_(std::move(site)) {}

Tensor ResidualDropout::drop(const Tensor& x_th, nn::StepContext& step) {
  if (probability_ == 0.0 || !step.training()) return x_th;
  // Every channel of a row is here, so the first one is the global channel 0.
  const SequenceLayout& text = step.batch.text();
  const LeafContext::Rows rows = context_.local_rows(text.num_rows());
  return ops::dropout(x_th, probability_, make_site(step.seed, site_),
                      text.sample_ids().narrow(0, rows.begin, rows.size),
                      text.token_index().narrow(0, rows.begin, rows.size), 0);
}

Tensor ResidualDropout::forward(const Tensor& x_th, const Tensor& residual_th,
                                nn::StepContext& step) {
  return residual_th.add(drop(x_th, step));
}

}  // namespace pentatron::parallel_layers

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/relative_bias.h"

#include <algorithm>
#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/ops/attention_sink.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

// Of `distance` tokens among `buckets` of one direction. fp32 in this order, as T5 has it: where
// the logarithm is a whole number, another precision could choose the neighbour.
std::int64_t bucket_of(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance) {
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return distance;
  const float ratio = static_cast<float>(distance) / static_cast<float>(exact);
  const auto span =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float steps = std::log(ratio) / span * static_cast<float>(buckets - exact);
  return std::min(exact + static_cast<std::int64_t>(steps), buckets - 1);
}

}  // namespace

std::vector<std::int64_t> relative_buckets(const RelativeForm& form) {
  const std::int64_t buckets = form.bidirectional ? form.num_buckets / 2 : form.num_buckets;
  PENTATRON_CHECK(buckets >= 2 && form.max_distance > buckets / 2, kConfig,
                  "--relative-attention-num-buckets {} must be at least {}, and "
                  "--relative-attention-max-distance {} beyond the {} distances with a bucket of "
                  "their own",
                  form.num_buckets, form.bidirectional ? 4 : 2, form.max_distance,
                  std::max<std::int64_t>(buckets, 2) / 2);
  std::vector<std::int64_t> of_distances;
  for (std::int64_t d = -form.max_distance; d <= form.max_distance; ++d) {
    const bool after = d > 0;
    if (form.bidirectional) {
      of_distances.push_back((after ? buckets : 0) +
                             bucket_of(std::abs(d), buckets, form.max_distance));
    } else {
      of_distances.push_back(after ? 0 : bucket_of(-d, buckets, form.max_distance));
    }
  }
  return of_distances;
}

Tensor relative_choice(const RelativeForm& form, DType dtype, Device device) {
  const std::vector<std::int64_t> buckets = relative_buckets(form);
  const auto columns = static_cast<std::size_t>(form.num_buckets);
  std::vector<double> choice(buckets.size() * columns, 0.0);
  for (std::size_t d = 0; d < buckets.size(); ++d) {
    choice[d * columns + static_cast<std::size_t>(buckets[d])] = 1.0;
  }
  return tensor::from_vector(choice)
      .view({static_cast<std::int64_t>(buckets.size()), form.num_buckets})
      .to(dtype)
      .to(device);
}

Tensor relative_bias(WeightRef& table_bn, const Tensor& choice_db, DType statistics) {
  // A product instead of a look-up: its gradient sums in one order on every device.
  return choice_db.mm(sink_logits(table_bn, statistics)).t();
}

}  // namespace pentatron::ops

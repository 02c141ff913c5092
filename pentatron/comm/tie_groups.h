// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"

namespace pentatron::comm {

// Who holds a weight together: the ranks along one axis that planned a part of the same name (word
// embeddings on the first and the last stage, or wherever else a model puts them).
class TieGroups final {
 public:
  struct Tie {
    std::vector<std::string> names;  // ascending; held by the same ranks
    std::unique_ptr<Group> group;
  };

  // Collective over `axis`: each rank gives the names of the tied parts that it holds, once each
  // and without line breaks (else kInternal). On an axis that the context has not, nothing is tied.
  TieGroups(ParallelContext& context, const std::string& axis, std::vector<std::string> names);

  // Names of this rank with a holder elsewhere. Ranks that share several ties meet them in the same
  // order.
  [[nodiscard]] const std::vector<Tie>& ties() const { return ties_; }

 private:
  std::vector<Tie> ties_;
};

}  // namespace pentatron::comm

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/local_stages.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"

namespace pentatron::nn {
namespace {

class NamedStage final : public Stage {
 public:
  explicit NamedStage(std::vector<std::string> names) {
    for (const std::string& name : names) {
      ShardPart part;
      part.name = name;
      part.logical_shape = {2};
      part.box = {{0}, {2}};
      part.local_rows = 2;
      weights_.push_back(&add_parameter(
          std::make_unique<Parameter>(name, ShardSpec{{part}, {2}}, precision_policy("fp32"))));
    }
  }
  Bundle forward(const Bundle& input, StepContext&) override { return input; }
  BundleSpec input_spec(const Batch&) const override { return {}; }
  BundleSpec output_spec(const Batch&) const override { return {}; }
  std::vector<Unit> units() override {
    std::vector<Unit> units;
    for (Parameter* weight : weights_) units.push_back({weight->local_name(), {weight}});
    return units;
  }

 private:
  std::vector<Parameter*> weights_;
};

TEST(LocalStages, CountsUnitsThroughAllChunks) {
  LocalStages stages;
  stages.add(std::make_unique<NamedStage>(std::vector<std::string>{"a", "b"}));
  stages.add(std::make_unique<NamedStage>(std::vector<std::string>{}));
  stages.add(std::make_unique<NamedStage>(std::vector<std::string>{"c"}));
  EXPECT_EQ(stages.size(), 3);
  EXPECT_EQ(stages.unit_range(0), (std::pair{0, 2}));
  EXPECT_EQ(stages.unit_range(1), (std::pair{2, 2}));
  EXPECT_EQ(stages.unit_range(2), (std::pair{2, 3}));
  std::string names;
  for (const Unit& unit : stages.units()) names += unit.name;
  EXPECT_EQ(names, "abc");
  EXPECT_EQ(stages.parameters().size(), 3U) << "as one module";
  EXPECT_THROW((void)stages.at(3), Error);
  EXPECT_THROW(stages.add(nullptr), Error);
}

}  // namespace
}  // namespace pentatron::nn

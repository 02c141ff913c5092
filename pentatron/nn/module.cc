// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/module.h"

#include "pentatron/base/error.h"

namespace pentatron::nn {

void Module::for_each_parameter(const std::function<void(Parameter&)>& visit) {
  for (const Entry& entry : order_) {
    if (entry.parameter != nullptr) {
      visit(*entry.parameter);
    } else {
      entry.child->for_each_parameter(visit);
    }
  }
}

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> found;
  for_each_parameter([&](Parameter& parameter) { found.push_back(&parameter); });
  return found;
}

Parameter& Module::add_parameter(std::unique_ptr<Parameter> parameter) {
  PENTATRON_CHECK(parameter != nullptr, kInternal, "a module was given no parameter");
  parameters_.push_back(std::move(parameter));
  order_.push_back({parameters_.back().get(), nullptr});
  return *parameters_.back();
}

}  // namespace pentatron::nn

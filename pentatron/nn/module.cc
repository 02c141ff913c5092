// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/module.h"

#include "pentatron/base/error.h"

namespace pentatron::nn {

void Module::for_each_parameter(const std::function<void(Parameter&)>& visit) {
  for (const Entry& entry : order_) {
    if (entry.parameter != nullptr) {
      visit(*entry.parameter);
    } else if (entry.child != nullptr) {
      entry.child->for_each_parameter(visit);
    }
  }
}

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> found;
  for_each_parameter([&](Parameter& parameter) { found.push_back(&parameter); });
  return found;
}

void Module::for_each_buffer(const std::function<void(Buffer&)>& visit) {
  for (const Entry& entry : order_) {
    if (entry.buffer != nullptr) {
      visit(*entry.buffer);
    } else if (entry.child != nullptr) {
      entry.child->for_each_buffer(visit);
    }
  }
}

std::vector<Buffer*> Module::buffers() {
  std::vector<Buffer*> found;
  for_each_buffer([&](Buffer& buffer) { found.push_back(&buffer); });
  return found;
}

void Module::for_each_scalar(const std::function<void(const LedgerEntry&)>& visit) const {
  for (const LedgerEntry& entry : scalars_) visit(entry);
  for (const std::unique_ptr<Module>& child : children_) child->for_each_scalar(visit);
}

void Module::commit(const StepOutcome& outcome) {
  commit_own(outcome);
  for (const std::unique_ptr<Module>& child : children_) child->commit(outcome);
}

Parameter& Module::add_parameter(std::unique_ptr<Parameter> parameter) {
  PENTATRON_CHECK(parameter != nullptr, kInternal, "a module was given no parameter");
  parameters_.push_back(std::move(parameter));
  order_.push_back({parameters_.back().get(), nullptr, nullptr});
  return *parameters_.back();
}

Buffer& Module::add_buffer(std::unique_ptr<Buffer> buffer) {
  PENTATRON_CHECK(buffer != nullptr, kInternal, "a module was given no buffer");
  buffers_.push_back(std::move(buffer));
  order_.push_back({nullptr, buffers_.back().get(), nullptr});
  return *buffers_.back();
}

}  // namespace pentatron::nn

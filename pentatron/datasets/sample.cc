// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sample.h"

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

template <typename T>
const std::vector<T>& values_of(const Sample& sample, std::string_view field, const char* kind) {
  const auto found = sample.fields.find(field);
  const auto* values =
      found == sample.fields.end() ? nullptr : std::get_if<std::vector<T>>(&found->second);
  PENTATRON_CHECK(values != nullptr, kInternal, "a sample has no field '{}' of {}", field, kind);
  return *values;
}

}  // namespace

const SampleSequence& Sample::sequence(std::string_view name) const {
  const auto found = sequences.find(name);
  PENTATRON_CHECK(found != sequences.end(), kInternal, "a sample has no sequence '{}'", name);
  return found->second;
}

const std::vector<std::int64_t>& Sample::ids(std::string_view field) const {
  return values_of<std::int64_t>(*this, field, "ids");
}

const std::vector<float>& Sample::weights(std::string_view field) const {
  return values_of<float>(*this, field, "weights");
}

std::int64_t Sample::length() const {
  std::int64_t rows = 0;
  for (const auto& [name, sequence] : sequences) {
    rows += static_cast<std::int64_t>(sequence.positions.size());
  }
  return rows;
}

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/parallel/parity_cases.h"

namespace pentatron::parity {

// Collects cases in groups; each gets a name of its own.
class CaseList final {
 public:
  void begin_group(const char* group) { group_ = group; }
  // `layout` equals one process.
  void equal(const CaseOptions& options, const Layout& layout);
  // The kinds differ.
  void differs(const CaseOptions& other, const CaseOptions& options);
  // `layout` has the bits of `kept`.
  void same_bits(const CaseOptions& options, const Layout& kept, const Layout& layout);
  [[nodiscard]] std::vector<ParityCase> take() { return std::move(cases_); }

 private:
  void add(const CaseOptions& options, const std::string& what, ParityCase made);

  std::string group_;
  std::map<std::string, int> names_;
  std::vector<ParityCase> cases_;
};

}  // namespace pentatron::parity

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/freeze.h"

#include <algorithm>
#include <limits>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/option_index.h"
#include "pentatron/models/gpt/sharding.h"

namespace pentatron::training {
namespace {

constexpr const char* kOption = "--freeze-parameters";

bool describes(const std::string& pattern, const std::string& name, const nn::ShardSpec& spec) {
  if (matches(pattern, name)) return true;
  const auto part_matches = [&](const nn::ShardPart& part) { return matches(pattern, part.name); };
  const auto count = std::count_if(spec.parts.begin(), spec.parts.end(), part_matches);
  PENTATRON_CHECK(count == 0 || count == static_cast<std::ptrdiff_t>(spec.parts.size()), kConfig,
                  "{} {}: {} is one parameter of {} parts, of which {} are meant: name all of them",
                  kOption, quoted_for_message(pattern), name, spec.parts.size(), count);
  return count > 0;
}

bool is_frozen(const std::vector<std::string>& patterns, const std::string& name,
               const nn::ShardSpec& spec) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return describes(pattern, name, spec); });
}

// The pattern nearest to one that describes nothing: a name, or a beginning of names and ".*".
std::string nearest(const std::string& pattern, const std::vector<nn::PlannedParameter>& all) {
  std::string best;
  int least = std::numeric_limits<int>::max() - 1;
  const auto consider = [&](const std::string& candidate) {
    const int distance = config::edit_distance(pattern, candidate, least);
    if (distance >= least) return;
    least = distance;
    best = candidate;
  };
  for (const nn::PlannedParameter& parameter : all) {
    const std::string& name = parameter.local_name;
    consider(name);
    for (std::size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      consider(name.substr(0, dot) + ".*");
    }
  }
  return best;
}

// Over the whole model, so that all ranks find the same.
void check_patterns(const config::RunConfig& config) {
  const std::vector<std::string>& patterns = config.optimizer.freeze_parameters;
  const auto plans = models::plan_parameters(config.model, 1, 1);
  const std::vector<nn::PlannedParameter>& all = plans.at(0).at(0).parameters();
  for (const std::string& pattern : patterns) {
    const bool found = std::any_of(all.begin(), all.end(), [&](const nn::PlannedParameter& p) {
      return describes(pattern, p.local_name, p.spec);
    });
    PENTATRON_CHECK(found, kConfig,
                    "{} {} describes no parameter of this model; the nearest that does is {} ('*' "
                    "stands for any characters)",
                    kOption, quoted_for_message(pattern), nearest(pattern, all));
  }
  const bool some_left = std::any_of(all.begin(), all.end(), [&](const nn::PlannedParameter& p) {
    return !is_frozen(patterns, p.local_name, p.spec);
  });
  PENTATRON_CHECK(some_left, kConfig,
                  "{} leaves no parameter to train: --skip-train evaluates without training",
                  kOption);
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, resumed = 0;  // the last '*' and where it ends so far
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resumed = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resumed;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void freeze_parameters(const config::RunConfig& config,
                       const std::vector<nn::Parameter*>& parameters) {
  const std::vector<std::string>& patterns = config.optimizer.freeze_parameters;
  if (patterns.empty()) return;
  check_patterns(config);
  for (nn::Parameter* parameter : parameters) {
    if (is_frozen(patterns, parameter->local_name(), parameter->spec())) {
      parameter->set_trainable(false);
    }
  }
}

}  // namespace pentatron::training

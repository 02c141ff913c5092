// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/layout_table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "pentatron/comm/backend.h"
#include "tests/parallel/sweep_layouts.h"

namespace pentatron::parity {
namespace {

constexpr std::int64_t kRanks = 2;
constexpr std::ptrdiff_t kCasesOfALine = 25;
constexpr const char* kPrecisions[] = {"fp32", "bf16"};

struct Kind {
  const char* name;
  ModelKind kind;
};
constexpr Kind kKinds[] = {{"Gpt2", ModelKind::kGpt2}, {"Llama", ModelKind::kLlama}};

std::string off(const char* what, const std::vector<double>& expected,
                const std::vector<double>& found, double bound) {
  if (expected.size() != found.size()) return fmt::format("{} {}s", found.size(), what);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    if (std::abs(found[step] - expected[step]) <= bound * std::abs(expected[step])) continue;
    return fmt::format("{} of step {}: {:.9g} against {:.9g}", what, step, found[step],
                       expected[step]);
  }
  return {};
}

}  // namespace

CaseOptions options_of(ModelKind kind, const std::string& precision, Device device) {
  CaseOptions options;
  options.model = kind;
  options.precision = precision;
  options.attention_dropout = false;
  options.device = device;
  return options;
}

std::vector<TableCase> table_of_two_ranks(Device device) {
  std::vector<TableCase> table;
  const auto add = [&](const NamedLayout& named, const Kind& kind, const char* precision) {
    if (named.layout.world_size() != kRanks) return;
    const CaseOptions options = options_of(kind.kind, precision, device);
    if (!refusal_of(options, named.layout).empty()) return;
    table.push_back(
        {fmt::format("{}_{}_{}", kind.name, precision, named.name), options, named.layout});
  };
  for (const NamedLayout& named : single_layouts()) {
    for (const Kind& kind : kKinds) {
      for (const char* precision : kPrecisions) add(named, kind, precision);
    }
  }
  std::size_t turn = 0;
  const auto add_in_turn = [&](const std::vector<NamedLayout>& layouts) {
    for (const NamedLayout& named : layouts) {
      if (named.layout.world_size() != kRanks) continue;
      add(named, kKinds[turn % 2], kPrecisions[0]);
      add(named, kKinds[(turn + 1) % 2], kPrecisions[1]);
      ++turn;
    }
  };
  add_in_turn(pair_layouts());
  add_in_turn(triple_layouts());
  return table;
}

std::string rounded_difference(const Outcome& alone, const Outcome& many,
                               const std::string& precision) {
  if (precision == "fp32") return difference(alone, many, 1e-4, 1e-3);
  const std::string loss = off("loss", alone.losses, many.losses, 1e-2);
  return loss.empty() ? off("norm", alone.norms, many.norms, 5e-2) : loss;
}

std::vector<std::string> table_problems(const std::vector<TableCase>& table,
                                        comm::Backend& backend) {
  std::vector<std::string> problems;
  std::map<std::pair<ModelKind, std::string>, Outcome> alone;
  for (const TableCase& c : table) {
    const std::ptrdiff_t number = &c - table.data();
    if (backend.rank() == 0 && number % kCasesOfALine == 0) {
      fmt::print(stderr, "layout {} of {}: {}\n", number + 1, table.size(), c.name);
    }
    const std::pair key{c.options.model, c.options.precision};
    if (!alone.contains(key)) {
      const auto single = comm::make_single_backend();
      alone.emplace(key, run_rank(c.options, Layout{}, *single));
    }
    const Outcome many = run_rank(c.options, c.layout, backend, c.name);
    std::string problem = rounded_difference(alone.at(key), many, c.options.precision);
    if (problem.empty() && many.num_buckets < least_buckets(c.layout)) {
      problem = fmt::format("{} buckets", many.num_buckets);
    }
    if (!problem.empty()) problems.push_back(fmt::format("{}: {}", c.name, problem));
  }
  return problems;
}

}  // namespace pentatron::parity

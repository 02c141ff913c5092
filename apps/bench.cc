// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/bench.h"

#include <algorithm>

#include "apps/command.h"
#include "pentatron/base/error.h"

namespace pentatron::apps {
namespace {

constexpr const char* kAbout =
    "How fast this machine's GPU (or CPU) is, and what training makes of it: first the ceilings of "
    "copies, products and attention, each alone, then, by the word, `kernels` (each fused kernel "
    "at the shapes of Llama 3 8B, as a share of the copy rate), `train` (whole trainings, each in "
    "a process of its own: tokens a second, TFLOP/s with causal attention counted half, the share "
    "of the least time that the ceilings allow, clock, power and energy a token) or `all` (also "
    "without a word); `ceilings` stops after the first table. A GPU should be otherwise idle.";

constexpr const char* kParts[] = {"ceilings", "kernels", "train", "all"};

bool is_part(const std::string& word) {
  return std::find(std::begin(kParts), std::end(kParts), word) != std::end(kParts);
}

}  // namespace

int bench(const Words& words) {
  Words given = words;
  if (std::none_of(words.begin(), words.end(), is_part)) given.insert(given.begin(), "all");
  const Flags flags(
      "bench", kAbout, {"PART..."},
      {{"--json", "FILE", "every figure, with the machine that it was measured on"},
       {"--device", "NAME", "auto, cpu or cuda", "auto"},
       {.name = "--workload",
        .value = "ID",
        .help = "trainings to run; without it all",
        .many = true},
       {"--steps", "N", "steps of a training that count; 0: as each workload has it", "0"}},
      given);
  if (flags.help()) return 0;
  bench::BenchRequest request{.device = flags.text("--device"),
                              .workloads = flags.texts("--workload"),
                              .steps = flags.integer("--steps", 0),
                              .json = flags.text("--json")};
  for (const std::string& part : flags.positionals()) {
    PENTATRON_CHECK(is_part(part), kConfig,
                    "pentatron bench: '{}' is no part; ceilings, kernels, train and all are", part);
    request.kernels = request.kernels || part == "kernels" || part == "all";
    request.train = request.train || part == "train" || part == "all";
  }
  PENTATRON_CHECK(request.train || request.workloads.empty(), kConfig,
                  "--workload names trainings, which `train` and `all` run");
  return bench::run_bench(request);
}

}  // namespace pentatron::apps

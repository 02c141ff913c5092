// SPDX-License-Identifier: Apache-2.0
// Written by tools/gen_known_options.py; change the rules there.
#include "pentatron/config/option_table.h"

namespace pentatron::config {
namespace {

constexpr OptionSpec kRows[] = {
    {.names = "--fault-injector-seed",
     .dest = "fault_injector_seed",
     .kind = OptionKind::kInt,
     .topic = Topic::kTraining,
     .option_class = OptionClass::kPlanned,
     .reason = "comes with fault handling"},
};

}  // namespace

std::span<const OptionSpec> known_options_10() { return kRows; }

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_table.h"

namespace pentatron::config {
namespace {

// The parser itself acts on these rows; they have no field.
constexpr OptionSpec kRows[] = {
    {.names = "--yaml-cfg",
     .dest = "yaml_cfg",
     .topic = Topic::kRun,
     .help = "read values from a YAML or JSON file; keys are destination or option names, sections "
             "nest freely",
     .test = "config_test Parser.ReadsYamlAndJsonFiles"},
    {.names = "--set",
     .dest = "set",
     .nargs = '+',
     .topic = Topic::kRun,
     .help =
         "dest=value pairs that win over every other origin; dest=null goes back to the default",
     .test = "config_test Parser.OriginsWinInOrder",
     .ours = true},
    {.names = "--check-options",
     .dest = "check_options",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kRun,
     .help = "check all options, print the resolved layout and stop",
     .test = "config_test CheckOptions.ReportsLayoutOrProblems",
     .ours = true},
    {.names = "--dry-run",
     .dest = "dry_run",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kRun,
     .help = "in place of the run: memory, communication and schedule of --rank of --world-size "
             "ranks, on one CPU, without data or weights",
     .test = "functional_test Options.DryRun",
     .ours = true},
    {.names = "--dry-run-json",
     .dest = "dry_run_json",
     .topic = Topic::kRun,
     .help = "with --dry-run: a file for what it finds, as JSON",
     .test = "functional_test Options.DryRunJson",
     .ours = true},
    {.names = "--help -h",
     .dest = "help",
     .topic = Topic::kRun,
     .help = "list the topics; with a topic or an option's name: what it knows about it; all: "
             "everything",
     .test = "config_test Help.ByTopicAndOption",
     .ours = true},
};

}  // namespace

std::span<const OptionSpec> run_options() { return kRows; }

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/config/launch_env.h"
#include "pentatron/config/option_table.h"
#include "pentatron/config/problems.h"

namespace pentatron::config {

// Where a value comes from; a later one wins.
enum class Origin { kDefault, kPreset, kCheckpoint, kFile, kCommandLine, kSet, kEnvironment };
[[nodiscard]] std::string_view to_string(Origin origin);

struct ValueOrigin {
  Origin origin = Origin::kDefault;
  std::string where;  // "run.yaml:3", "--lr", the name of a preset or checkpoint
};

// By destination; what is missing has its default.
using Origins = std::map<std::string, ValueOrigin, std::less<>>;

// Whether a person set this value for this run (file, command line, --set), as against a default,
// preset or checkpoint.
[[nodiscard]] bool set_by_user(const Origins& origins, std::string_view dest);

// Values below the user's: a preset or the options stored in a checkpoint.
struct ValueLayer {
  Origin origin = Origin::kPreset;
  std::string label;
  std::vector<std::pair<std::string, OptionValue>> values = {};  // by destination
};

// A layer of what a part of `config` ("model": RunConfig::model) holds beside the initial values
// ("build the model that this checkpoint has").
[[nodiscard]] ValueLayer layer_from_config(const RunConfig& config, Origin origin,
                                           std::string label, std::string_view part);

// An option of one subcommand that is no training option ("--prompt"); it wins over a table's row
// of the same name.
struct ProgramOption {
  std::string_view name;
  char nargs = 1;  // 0: a switch; 1: one value; '+': at least one
};

// The last value that command line, files or --set give a destination, as text ("true" and "false"
// of a switch); nothing when none does.
using EarlyValue = std::function<std::optional<std::string>(std::string_view dest)>;

struct ParseRequest {
  std::vector<std::string> words;  // the command line after the subcommand
  Environment environment;
  std::vector<ValueLayer> layers;
  std::vector<ProgramOption> program_options;
  // More layers that the values themselves ask for (--model-preset, --load); its errors of kind
  // config, data and unsupported become problems.
  std::function<std::vector<ValueLayer>(const EarlyValue&)> layers_for = {};
};

enum class Action { kRun, kHelp, kCheck };

// An option that is accepted without doing anything, and why.
struct OptionNote {
  std::string spelled;
  std::string reason;
  bool operator==(const OptionNote&) const = default;
};

struct ParsedOptions {
  RunConfig config;
  Origins origins;
  // Options that ask for what is always done, and options or values that change nothing here; each
  // spelling once, in the order of first use.
  std::vector<OptionNote> always_so;
  std::vector<OptionNote> no_effect;
  std::map<std::string, std::vector<std::string>, std::less<>> program_values;
  Action action = Action::kRun;
  std::string help_topic;
};

// Splits, converts and checks; the order of origins is default < preset < checkpoint < file <
// command line < --set, and on the command line the last one wins. Spellings are never abbreviated.
// Everything that is wrong is thrown at once as one error of kind config: unknown names with the
// nearest ones, missing and bad values, refused options with the reason, launcher variables that
// contradict options. What changes nothing is accepted and noted. With --help nothing is thrown.
[[nodiscard]] ParsedOptions parse(const ParseRequest& request);

// The same, adding to `problems` instead of throwing.
[[nodiscard]] ParsedOptions parse_into(const ParseRequest& request, Problems& problems);

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/config/parser.h"

// Texts for people; none ends with a line's end.
namespace pentatron::config {

// Destination and value of everything that has an effect, and data_parallel_size, sorted without
// case; values as Python's str() writes them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> argument_list(
    const RunConfig& config);

// The block of arguments that a run prints at start, in Megatron's form: a line for each
// destination that has an effect, and data_parallel_size, sorted without case, dots to column 48,
// values as Python's str() writes them.
[[nodiscard]] std::string argument_dump(const RunConfig& config);

// "always so here: --use-mcore-models (there is one implementation of each model), ..."; empty when
// none was used.
[[nodiscard]] std::string always_so_line(const ParsedOptions& parsed);

// "no effect here: --no-rope-fusion (...), --rotary-base (...)"; empty when there is none.
[[nodiscard]] std::string no_effect_line(const ParsedOptions& parsed);

// "--model-preset llama3.2-1b gives: --num-layers 16, ..." with the values that nobody set
// otherwise; the same of a checkpoint or folder. Empty when no layer gave any.
[[nodiscard]] std::string layers_line(const ParsedOptions& parsed);

// "batches are lowered from 6 to 4 samples (...)" where --decrease-batch-size-if-needed does that;
// else empty.
[[nodiscard]] std::string lowered_batches_line(const RunConfig& config);

// One line: world size and what divides it.
[[nodiscard]] std::string layout_line(const RunConfig& config);

// Names of the topics that --help takes.
[[nodiscard]] std::vector<std::string_view> help_topics();

// Empty topic: the list of topics; "all": every option; a topic: its options, those that work
// first; an option's name: all that is known of it. Unknown words: kConfig with the nearest names.
[[nodiscard]] std::string help_text(std::string_view topic);

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/parser.h"

namespace pentatron::config {

// What the values are needed for.
enum class Purpose {
  kTrain,  // everything
  kModel,  // model and layout only (generate, inspect): no data, schedule or save rules
};

// Gives every "resolved" field of config.h its value, by the formulas beside it, and checks values
// against each other. All problems come in one error of kind config, each naming values and
// options. A resolved config resolves to itself.
void resolve(RunConfig& config, Purpose purpose = Purpose::kTrain);

// The same, adding to `problems`; what a problem is already about is not complained of again, and
// user-set values are told from defaults by `origins`.
void resolve_into(RunConfig& config, const Origins& origins, Purpose purpose, Problems& problems);

// Once the tokenizer is loaded: the true vocabulary (the tokenizer's, or a larger --vocab-size) and
// the padded one, its ceiling to a multiple of make_vocab_size_divisible_by x
// tensor_model_parallel_size unless --padded-vocab-size is given.
void resolve_vocab(RunConfig& config, std::int64_t tokenizer_vocab_size);

// parse() and resolve() with all problems of both at once.
[[nodiscard]] ParsedOptions load_options(const ParseRequest& request,
                                         Purpose purpose = Purpose::kTrain);

}  // namespace pentatron::config

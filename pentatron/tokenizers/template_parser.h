// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "pentatron/tokenizers/template_syntax.h"

namespace pentatron::tokenizers::chat {

// Nested statements and expressions of a template at most.
inline constexpr int kMaxSyntaxDepth = 100;
// Levels of an expression's tree: a run of operators is as deep as it is long.
inline constexpr int kMaxExpressionDepth = 500;

// What is no template: kData; what Jinja has and this has not (include, block, recursive loops,
// ...): kUnsupported; both name `name`:line:column. Nested deeper than kMaxSyntaxDepth: kData.
[[nodiscard]] Statements parse_template(std::string_view source, std::string_view name);

}  // namespace pentatron::tokenizers::chat

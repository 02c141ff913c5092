// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/tokenizers/template_lexer.cc pentatron/tokenizers/template_parser.cc pentatron/tokenizers/template_expressions.cc pentatron/tokenizers/template_evaluator.cc pentatron/tokenizers/template_calls.cc pentatron/tokenizers/template_operations.cc pentatron/tokenizers/template_filters.cc pentatron/tokenizers/template_methods.cc pentatron/tokenizers/template_value.cc pentatron/tokenizers/template_print.cc pentatron/tokenizers/template_text.cc pentatron/tokenizers/white_space.cc pentatron/base/error.cc
// libs: fmt icuuc
// max_len: 2048
// clang-format on
//
// Any bytes as a chat template: refused with a place, or rendered within its limits.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_evaluator.h"
#include "pentatron/tokenizers/template_parser.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron;
  using namespace pentatron::tokenizers::chat;
  static const Value kMessages = Value::of_json(nlohmann::ordered_json::parse(
      R"([{"role": "user", "content": " Größe? "},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "n": 2.5}}]}])"));
  static const Scope kGlobals = {{"messages", kMessages},
                                 {"tools", Value()},
                                 {"add_generation_prompt", Value::of(true)},
                                 {"bos_token", Value::of(std::string("<s>"))}};
  constexpr EvaluationLimits kLimits{
      .steps = 100'000, .output_bytes = 1 << 20, .macro_depth = 10, .depth = 300};
  try {
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    const Statements statements = parse_template(source, "t");
    const std::string text = Evaluator(kGlobals, "t", 0, kLimits).run(statements);
    require(text.size() <= kLimits.output_bytes);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kData || error.kind() == ErrorKind::kUnsupported);
  }
  return 0;
}

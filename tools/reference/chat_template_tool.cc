// SPDX-License-Identifier: Apache-2.0
// chat_template_tool: reads JSON lines {template, messages, more, add_generation_prompt, bos_token,
// eos_token, now} from standard input and writes {text}, or {error, kind}. What
// tools/reference/chat_template_reference.py compares with Jinja.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/chat_template.h"

int main() {
  using Json = nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      const Json request = Json::parse(line);
      const pentatron::tokenizers::ChatTemplate chat_template(
          request.at("template").get<std::string>(), "template");
      pentatron::tokenizers::ChatOptions options;
      options.add_generation_prompt = request.value("add_generation_prompt", true);
      options.bos_token = request.value("bos_token", "");
      options.eos_token = request.value("eos_token", "");
      options.now = request.value("now", 0);
      answer["text"] = chat_template.render(request.at("messages"),
                                            request.value("more", Json::object()), options);
    } catch (const pentatron::Error& error) {
      answer["error"] = error.what();
      answer["kind"] = pentatron::to_string(error.kind());
    }
    std::cout << answer.dump() << "\n";
  }
}

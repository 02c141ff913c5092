// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/conversation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::datasets {
namespace {

using nlohmann::json;
using Names = std::initializer_list<const char*>;

constexpr Names kInstruction = {"instruction", "prompt", "query", "question"};
constexpr Names kContext = {"input", "context"};
constexpr Names kOutput = {"output", "response", "completion", "answer"};

// A text member; null and a missing one are empty.
std::string text_of(const json& object, const char* key, std::string_view place) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  PENTATRON_CHECK(found->is_string(), kData, "{}: \"{}\" is no text", place, key);
  return found->get<std::string>();
}

// The first of several members that has a text.
std::string first_text(const json& object, Names keys, std::string_view place) {
  for (const char* const key : keys) {
    std::string text = text_of(object, key, place);
    if (!text.empty()) return text;
  }
  return {};
}

bool has(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

template <typename Test>
bool is_alpaca(const json& object, Test test) {
  const auto any = [&](Names keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return test(object, key); });
  };
  return any(kInstruction) && any(kOutput);
}

const json& list_of(const json& object, const char* key, std::string_view place) {
  const json& list = object.at(key);
  PENTATRON_CHECK(list.is_array() && !list.empty(), kData, "{}: \"{}\" is no list of turns", place,
                  key);
  for (const json& turn : list) {
    PENTATRON_CHECK(turn.is_object(), kData, "{}: a turn of \"{}\" is no object", place, key);
    const auto calls = turn.find("tool_calls");
    PENTATRON_CHECK(calls == turn.end() || calls->is_null() || calls->empty(), kData,
                    "{}: a turn has tool_calls, which no prompt format writes: put them into its "
                    "content",
                    place);
  }
  return list;
}

std::vector<Conversation> of_messages(const json& object, std::string_view place) {
  std::vector<Conversation> all;
  for (const json& message : list_of(object, "messages", place)) {
    Turn turn{.role = text_of(message, "role", place),
              .content = text_of(message, "content", place)};
    PENTATRON_CHECK(!turn.role.empty(), kData, "{}: a message has no \"role\"", place);
    if (all.empty() || turn.role == "system") all.emplace_back();
    all.back().push_back(std::move(turn));
  }
  return all;
}

std::string role_of(std::string speaker) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 10> kRoles = {
      {{"gpt", "assistant"},
       {"assistant", "assistant"},
       {"model", "assistant"},
       {"chatgpt", "assistant"},
       {"bing", "assistant"},
       {"bard", "assistant"},
       {"system", "system"},
       {"tool", "tool"},
       {"function", "tool"},
       {"observation", "tool"}}};
  for (char& c : speaker) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [name, role] : kRoles) {
    if (speaker == name) return role;
  }
  return "user";
}

std::vector<Conversation> of_sharegpt(const json& object, std::string_view place) {
  Conversation turns;
  for (const json& turn : list_of(object, "conversations", place)) {
    const std::string role = role_of(text_of(turn, "from", place));
    if (turns.empty() && role != "system") turns.push_back({.role = "system", .content = ""});
    turns.push_back({.role = role, .content = text_of(turn, "value", place)});
  }
  return {std::move(turns)};
}

std::vector<Conversation> of_alpaca(const json& object, std::string_view place) {
  std::string request = first_text(object, kInstruction, place);
  const std::string context = first_text(object, kContext, place);
  if (!context.empty()) request += "\n\n" + context;
  return {{{.role = "system", .content = ""},
           {.role = "user", .content = std::move(request)},
           {.role = "assistant", .content = first_text(object, kOutput, place)}}};
}

}  // namespace

std::vector<Conversation> parse_conversations(std::string_view line, std::string_view place) {
  const json object = parse_json(line, place);
  PENTATRON_CHECK(object.is_object(), kData, "{}: not a JSON object", place);
  if (has(object, "messages")) return of_messages(object, place);
  if (has(object, "conversations")) return of_sharegpt(object, place);
  if (is_alpaca(object, has)) return of_alpaca(object, place);
  if (has(object, "text")) {
    return {{{.role = "", .content = text_of(object, "text", place)}}};
  }
  const auto named = [](const json& of, const char* key) { return of.contains(key); };
  if (is_alpaca(object, named)) return of_alpaca(object, place);
  std::string keys;
  for (const auto& [key, value] : object.items()) {
    keys += (keys.empty() ? "" : ", ") + quoted_for_message(key);
  }
  PENTATRON_THROW(
      kData,
      "{}: no conversation: expected \"messages\", \"conversations\", \"instruction\" and "
      "\"output\", or \"text\", found {}",
      place, keys.empty() ? "no keys" : keys.substr(0, 400));
}

}  // namespace pentatron::datasets

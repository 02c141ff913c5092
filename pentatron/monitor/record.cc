// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/record.h"

#include <simdjson.h>

#include <limits>

namespace pentatron::monitor {
namespace {

using simdjson::dom::element;

constexpr std::size_t kLongestText = 4000;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Cut at the start of a character.
std::string shortened(std::string_view text, std::size_t longest = kLongestText) {
  if (text.size() <= longest) return std::string(text);
  std::size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "...";
}

// "validation-NAME" where there are several sets.
constexpr std::string_view kOneOfSeveral = "validation-";
constexpr std::size_t kLongestSetName = 60;

std::optional<RecordKind> kind_of(std::string_view name) {
  if (name == "train") return RecordKind::kTrain;
  if (name.size() > kOneOfSeveral.size() && name.starts_with(kOneOfSeveral)) {
    return RecordKind::kValidation;
  }
  if (name == "validation") return RecordKind::kValidation;
  if (name == "test") return RecordKind::kTest;
  if (name == "sample") return RecordKind::kSample;
  if (name == "run") return RecordKind::kRun;
  return std::nullopt;
}

// The members that are read, found in one pass: an object with thousands of others costs no more.
struct Members {
  static constexpr std::size_t kKind = kFields.size();
  static constexpr std::size_t kIteration = kKind + 1;
  static constexpr std::size_t kTokens = kKind + 2;
  static constexpr std::size_t kTime = kKind + 3;
  static constexpr std::size_t kPrompt = kKind + 4;
  static constexpr std::size_t kText = kKind + 5;
  static constexpr std::size_t kCount = kKind + 6;

  std::array<std::optional<element>, kCount> found;
  bool twice = false;

  static std::size_t place_of(std::string_view name) {
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (kFields[i] == name) return i;
    }
    constexpr std::array<std::string_view, kCount - kKind> kOthers{
        "kind", "iteration", "consumed_tokens", "time", "prompt", "text"};
    for (std::size_t i = 0; i < kOthers.size(); ++i) {
      if (kOthers[i] == name) return kKind + i;
    }
    return kCount;
  }

  explicit Members(const simdjson::dom::object& object) {
    for (const auto member : object) {
      const std::size_t place = place_of(member.key);
      if (place == kCount) continue;
      twice = twice || found[place].has_value();
      found[place] = member.value;
    }
  }

  // NaN unless there is such a number.
  [[nodiscard]] double number(std::size_t place) const {
    double value = kNan;
    if (!found[place] || found[place]->get(value) != simdjson::SUCCESS) return kNan;
    return value;
  }
  [[nodiscard]] std::optional<std::string_view> text(std::size_t place) const {
    std::string_view value;
    if (!found[place] || found[place]->get(value) != simdjson::SUCCESS) return std::nullopt;
    return value;
  }
  [[nodiscard]] std::optional<std::int64_t> integer(std::size_t place) const {
    std::int64_t value = 0;
    if (!found[place] || found[place]->get(value) != simdjson::SUCCESS) return std::nullopt;
    return value;
  }
};

std::optional<Record> record_of(const element& document, const Members& members) {
  const auto name = members.text(Members::kKind);
  const auto iteration = members.integer(Members::kIteration);
  constexpr std::int64_t kMaxIteration = 1LL << 53;  // what a page's numbers hold exactly
  if (members.twice || !name || !iteration || *iteration < 0 || *iteration > kMaxIteration) {
    return std::nullopt;
  }
  const std::optional<RecordKind> kind = kind_of(*name);
  if (!kind) return std::nullopt;
  Record record{.kind = *kind, .iteration = *iteration};
  if (name->starts_with(kOneOfSeveral)) {
    record.set = shortened(name->substr(kOneOfSeveral.size()), kLongestSetName);
  }
  for (std::size_t i = 0; i < kFields.size(); ++i) record.values[i] = members.number(i);
  record.consumed_tokens = members.number(Members::kTokens);
  record.time = members.number(Members::kTime);
  if (record.kind == RecordKind::kSample) {
    const auto prompt = members.text(Members::kPrompt);
    const auto text = members.text(Members::kText);
    if (!prompt || !text) return std::nullopt;
    record.prompt = shortened(*prompt);
    record.text = shortened(*text);
  }
  if (record.kind == RecordKind::kRun) record.text = simdjson::minify(document);
  return record;
}

}  // namespace

std::optional<Record> parse_record(std::string_view line) {
  constexpr std::size_t kMaxDepth = 64;
  static thread_local simdjson::dom::parser parser;
  if (parser.max_depth() != kMaxDepth &&
      parser.allocate(line.size(), kMaxDepth) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  element document;
  simdjson::dom::object object;
  if (parser.parse(line.data(), line.size()).get(document) != simdjson::SUCCESS ||
      document.get(object) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return record_of(document, Members(object));
}

}  // namespace pentatron::monitor

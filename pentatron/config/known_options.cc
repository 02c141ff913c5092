// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/known_options.h"

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/config/json_text.h"

namespace pentatron::config {
namespace {

using nlohmann::json;

// Where in known_options.json an option stands.
struct Classification {
  OptionClass option_class = OptionClass::kPlanned;
  Topic topic = Topic::kModel;
  std::string_view reason;
  std::string_view stands_for = {};
};

// Owns the text that the rows' string_views name.
class KnownOptions final {
 public:
  KnownOptions() {
    read_classes(parse_json(known_options_json(), "known_options.json"));
    for (const json& row : parse_json(megatron_options_json(), "megatron_options.json")) {
      add_row(row);
    }
    PENTATRON_CHECK(classes_.empty(), kInternal,
                    "known_options.json classifies {}, which is no option of Megatron-LM",
                    classes_.empty() ? std::string() : classes_.begin()->first);
  }
  [[nodiscard]] std::span<const OptionSpec> rows() const { return rows_; }

 private:
  void read_classes(const json& groups) {
    for (const json& group : groups) {
      const Classification classification{
          .option_class = class_named(group.at("class").get<std::string>()),
          .topic = topic_named(group.at("topic").get<std::string>()),
          .reason = keep(group.at("reason").get<std::string>()),
          .stands_for = keep(group.value("stands_for", std::string()))};
      for (const json& name : group.at("options")) {
        const bool is_new = classes_.emplace(name.get<std::string>(), classification).second;
        PENTATRON_CHECK(is_new, kInternal, "known_options.json classifies {} twice",
                        name.get<std::string>());
      }
    }
  }

  void add_row(const json& row) {
    const auto found = classes_.find(row.at("names").at(0).get<std::string>());
    if (found == classes_.end()) return;
    const Classification& classification = found->second;
    const json nargs = row.value("nargs", json(""));
    const std::string nargs_text = nargs.is_string() ? nargs.get<std::string>() : nargs.dump();
    rows_.push_back({.names = keep(joined_text(row.at("names"), ' ')),
                     .dest = keep(row.at("dest").get<std::string>()),
                     .kind = kind_named(row.at("kind").get<std::string>()),
                     .nargs = nargs_text.empty() ? '\0' : nargs_text.front(),
                     .default_repr = keep(python_text(row.at("default"))),
                     .choices = row.contains("choices") ? keep(joined_text(row.at("choices"), '|'))
                                                        : std::string_view(),
                     .topic = classification.topic,
                     .option_class = classification.option_class,
                     .reason = classification.reason,
                     .stands_for = classification.stands_for});
    classes_.erase(found);
  }

  std::string_view keep(std::string text) { return text_.emplace_back(std::move(text)); }

  static OptionClass class_named(std::string_view name) {
    for (const OptionClass option_class : {OptionClass::kSynonym, OptionClass::kNoEffect,
                                           OptionClass::kPlanned, OptionClass::kNever}) {
      if (to_string(option_class) == name) return option_class;
    }
    PENTATRON_THROW(kInternal, "known_options.json: no class named {}", name);
  }

  static Topic topic_named(std::string_view name) {
    for (int i = 0; i < kNumTopics; ++i) {
      if (to_string(static_cast<Topic>(i)) == name) return static_cast<Topic>(i);
    }
    PENTATRON_THROW(kInternal, "known_options.json: no topic named {}", name);
  }

  static OptionKind kind_named(std::string_view name) {
    if (name == "int") return OptionKind::kInt;
    if (name == "float") return OptionKind::kFloat;
    if (name == "switch on") return OptionKind::kSwitchOn;
    if (name == "switch off") return OptionKind::kSwitchOff;
    if (name == "on/off pair") return OptionKind::kSwitchPair;
    return OptionKind::kString;
  }

  std::deque<std::string> text_;
  std::map<std::string, Classification, std::less<>> classes_;
  std::vector<OptionSpec> rows_;
};

}  // namespace

std::span<const OptionSpec> known_options() {
  static const KnownOptions kKnown;
  return kKnown.rows();
}

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/apply_launch_env.h"
#include "pentatron/config/convert.h"
#include "pentatron/config/effects.h"
#include "pentatron/config/option_file.h"
#include "pentatron/config/option_index.h"
#include "pentatron/config/option_words.h"

namespace pentatron::config {
namespace {

// One value on its way from a user to the config.
struct Assignment {
  const OptionSpec* spec = nullptr;
  Origin origin = Origin::kCommandLine;
  std::string spelled = {};             // as the user wrote it
  std::string where = {};               // for origins and messages
  std::vector<std::string> words = {};  // of a switch: empty, or its value as text
  bool by_destination =
      false;  // a switch's value is the destination's, not "is the switch present"
  bool is_null = false;
};

// Whether this spelling of a switch sets its destination to false.
bool turns_off(const Assignment& assignment) {
  const OptionKind kind = assignment.spec->kind;
  return kind == OptionKind::kSwitchOff ||
         (kind == OptionKind::kSwitchPair && assignment.spelled.find("no-") != std::string::npos);
}

bool is_option_word(std::string_view word) { return word.size() > 2 && word.starts_with("--"); }

class Parser final {
 public:
  Parser(const ParseRequest& request, Problems& problems)
      : request_(request),
        problems_(problems),
        words_(request.words, OptionWords::Values::kNumbers) {}

  ParsedOptions run() {
    read_command_line();
    if (parsed_.action == Action::kHelp) return std::move(parsed_);
    apply_layers();
    for (const Assignment& assignment : from_files_) apply(assignment);
    for (const Assignment& assignment : from_words_) apply(assignment);
    for (const Assignment& assignment : from_set_) apply(assignment);
    apply_synonyms();
    check_precision();
    const LaunchEnv launcher = read_launch_env(request_.environment, problems_);
    if (!is_launched_dry_run(launcher)) apply_launch_env(launcher, parsed_, problems_);
    check_data_sources(parsed_.config, parsed_.origins, problems_);
    check_wide_gradients(parsed_.config, parsed_.always_so, problems_);
    for (OptionNote& note : values_without_effect(parsed_.config, parsed_.origins)) {
      add_note(parsed_.no_effect, std::move(note));
    }
    return std::move(parsed_);
  }

 private:
  // Splitting.
  void read_command_line();
  void read_option(OptionWord option);
  bool read_program_option(const OptionWord& option);
  void read_run_option(const OptionSpec& spec, const std::vector<std::string>& words);
  void read_file(const std::string& path);
  void read_set(const std::string& word);
  void unknown(std::string_view what, std::string_view name, std::string_view where);

  // Applying.
  [[nodiscard]] std::optional<std::string> early_value(std::string_view dest) const;
  [[nodiscard]] std::string early_switch(const Assignment& assignment) const;
  [[nodiscard]] std::vector<ValueLayer> asked_layers();
  void apply_layers();
  void apply(const Assignment& assignment);
  void accept(const Assignment& assignment, std::vector<OptionNote>& notes,
              std::string_view reason);
  static void add_note(std::vector<OptionNote>& notes, OptionNote note);
  void apply_synonyms();
  void refuse(const Assignment& assignment);
  [[nodiscard]] bool asks_for_default(const Assignment& assignment) const;
  std::optional<OptionValue> convert(const Assignment& assignment);
  std::optional<OptionValue> convert_switch(const Assignment& assignment);
  void check_precision();
  [[nodiscard]] bool is_launched_dry_run(const LaunchEnv& env);

  const ParseRequest& request_;
  Problems& problems_;
  OptionWords words_;
  OptionIndex index_;
  ParsedOptions parsed_;
  std::vector<Assignment> from_files_;
  std::vector<Assignment> from_words_;
  std::vector<Assignment> from_set_;
  std::vector<const Assignment*> synonyms_;
};

void Parser::read_command_line() {
  while (!words_.done()) {
    if (words_.peek() == "-h") {
      words_.take();
      read_option({.name = "--help", .value = std::nullopt});
    } else if (std::optional<OptionWord> option = words_.take_option()) {
      read_option(std::move(*option));
    } else {
      problems_.add(fmt::format("unexpected word {}: it belongs to no option",
                                quoted_for_message(words_.take())));
    }
  }
}

bool Parser::read_program_option(const OptionWord& option) {
  const auto row = std::find_if(request_.program_options.begin(), request_.program_options.end(),
                                [&](const ProgramOption& one) { return one.name == option.name; });
  if (row == request_.program_options.end()) return false;
  std::vector<std::string> words;
  if (option.value) {
    words.push_back(*option.value);
  } else if (row->nargs != 0) {
    words = words_.take_values(row->nargs == '+');
  }
  if (row->nargs != 0 && words.empty()) {
    problems_.add(fmt::format("{}: expected a value", option.name));
  } else if (row->nargs == 0 && option.value) {
    problems_.add(fmt::format("{}: a switch takes no value", option.name));
  }
  parsed_.program_values.insert_or_assign(option.name, std::move(words));
  return true;
}

void Parser::read_option(OptionWord option) {
  if (read_program_option(option)) return;
  if (option.name == "--help" && !option.value && !words_.done()) {
    option.value = words_.take();  // a topic, or an option's name with its dashes
  }
  const OptionSpec* spec = index_.find_name(option.name);
  if (spec == nullptr) {
    unknown("option", option.name, {});
    static_cast<void>(words_.take_values(/*many=*/true));
    return;
  }
  Assignment assignment{.spec = spec, .spelled = option.name, .where = option.name};
  if (option.value) {
    assignment.words.push_back(std::move(*option.value));
    if (is_switch(spec->kind)) {
      problems_.add(fmt::format("{}: a switch takes no value", option.name), spec->dest);
      return;
    }
  } else if (!is_switch(spec->kind)) {
    assignment.words = words_.take_values(spec->nargs != 0);
  }
  if (spec->topic == Topic::kRun && spec->option_class == OptionClass::kWorks) {
    read_run_option(*spec, assignment.words);
  } else {
    from_words_.push_back(std::move(assignment));
  }
}

void Parser::read_run_option(const OptionSpec& spec, const std::vector<std::string>& words) {
  if (spec.dest == "help") {
    parsed_.action = Action::kHelp;
    if (!words.empty()) parsed_.help_topic = words.front();
  } else if (spec.dest == "check_options") {
    if (parsed_.action == Action::kRun) parsed_.action = Action::kCheck;
  } else if (spec.dest == "dry_run") {
    parsed_.program_values.insert_or_assign(std::string(spec.names), words);
  } else if (words.empty()) {
    problems_.add(fmt::format("{}: expected a value", spec.names));
  } else if (spec.dest == "yaml_cfg") {
    read_file(words.front());
  } else if (spec.dest == "dry_run_json") {
    parsed_.program_values.insert_or_assign(std::string(spec.names), words);
  } else {
    for (const std::string& word : words) read_set(word);
  }
}

void Parser::read_file(const std::string& path) {
  std::vector<FileValue> values;
  try {
    values = read_option_file(path);
  } catch (const Error& error) {
    problems_.add(fmt::format("--yaml-cfg: {}", error.what()));
    return;
  }
  std::set<std::string_view> seen;
  for (const FileValue& value : values) {
    const std::string where = value.line > 0 ? fmt::format("{}:{}", path, value.line) : path;
    std::string dashed = value.key.starts_with("--") ? value.key : "--" + value.key;
    const OptionSpec* by_dest = index_.find_dest(value.key);
    const OptionSpec* spec = by_dest != nullptr ? by_dest : index_.find_name(dashed);
    if (spec == nullptr) {
      std::replace(dashed.begin() + 2, dashed.end(), '_', '-');
      spec = index_.find_name(dashed);
    }
    if (spec == nullptr) {
      unknown("key", value.key, where);
      continue;
    }
    if (spec->topic == Topic::kRun && spec->option_class == OptionClass::kWorks) {
      problems_.add(fmt::format("{}: {} belongs on the command line", where, value.key));
      continue;
    }
    if (!seen.insert(spec->dest).second) {
      problems_.add(fmt::format("{}: {} is set twice", where, spec->dest), spec->dest);
      continue;
    }
    if (value.is_list && spec->nargs == 0) {
      problems_.add(fmt::format("{}: {}: expected one value, got a list", where, value.key),
                    spec->dest);
      continue;
    }
    from_files_.push_back({.spec = spec,
                           .origin = Origin::kFile,
                           .spelled = value.key,
                           .where = where,
                           .words = value.words,
                           .by_destination = by_dest != nullptr,
                           .is_null = value.is_null});
  }
}

void Parser::read_set(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  if (equals == std::string::npos || key.empty()) {
    problems_.add(fmt::format("--set {}: expected dest=value", quoted_for_message(word)));
    return;
  }
  const OptionSpec* spec = index_.find_dest(key);
  if (spec == nullptr) return unknown("destination", key, "--set");
  if (spec->topic == Topic::kRun && spec->option_class == OptionClass::kWorks) {
    problems_.add(fmt::format("--set {}: this option belongs on the command line", key));
    return;
  }
  Assignment assignment{.spec = spec,
                        .origin = Origin::kSet,
                        .spelled = fmt::format("--set {}", key),
                        .where = "--set",
                        .by_destination = true};
  const std::string value = word.substr(equals + 1);
  if (value == "null" || value == "None") {
    assignment.is_null = true;
  } else if (spec->nargs != 0) {
    for (const std::string_view item : split_words(value, ' ')) assignment.words.emplace_back(item);
  } else {
    assignment.words.push_back(value);
  }
  from_set_.push_back(std::move(assignment));
}

void Parser::unknown(std::string_view what, std::string_view name, std::string_view where) {
  std::string line = where.empty() ? std::string() : fmt::format("{}: ", where);
  line += fmt::format("unknown {} {}", what, quoted_for_message(name));
  std::string dashed(name);
  if (!is_option_word(dashed)) {
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    dashed = "--" + dashed;
  }
  std::string_view dest;
  const std::vector<std::string_view> near = index_.nearest(dashed);
  for (const std::string_view spelling : near) {
    const OptionSpec* spec = index_.find_name(spelling);
    if (dest.empty()) dest = spec->dest;
    line += spelling == near.front() ? "; did you mean " : " or ";
    line += is_option_word(name) ? spelling : spec->dest;
  }
  if (!near.empty()) line += "?";
  problems_.add(std::move(line), dest);
}

// What a switch gives its destination; a value that cannot be read is told when it is applied.
std::string Parser::early_switch(const Assignment& assignment) const {
  bool value = true;
  if (!assignment.words.empty()) {
    value = parse_flag(assignment.words.front()).value_or(false);
    if (assignment.by_destination) return value ? "true" : "false";
  }
  return value != turns_off(assignment) ? "true" : "false";
}

std::optional<std::string> Parser::early_value(std::string_view dest) const {
  for (const auto* list : {&from_set_, &from_words_, &from_files_}) {
    for (auto assignment = list->rbegin(); assignment != list->rend(); ++assignment) {
      if (assignment->spec->dest != dest) continue;
      if (assignment->is_null) return std::nullopt;
      if (is_switch(assignment->spec->kind)) return early_switch(*assignment);
      return assignment->words.empty() ? std::string() : assignment->words.front();
    }
  }
  return std::nullopt;
}

std::vector<ValueLayer> Parser::asked_layers() {
  if (!request_.layers_for) return {};
  try {
    return request_.layers_for([this](std::string_view dest) { return early_value(dest); });
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    const bool of_options =
        kind == ErrorKind::kConfig || kind == ErrorKind::kData || kind == ErrorKind::kUnsupported;
    if (!of_options) throw;
    problems_.add(error.what());
    return {};
  }
}

void Parser::apply_layers() {
  const std::vector<ValueLayer> asked = asked_layers();
  std::vector<const ValueLayer*> layers;
  for (const ValueLayer& layer : request_.layers) layers.push_back(&layer);
  for (const ValueLayer& layer : asked) layers.push_back(&layer);
  std::stable_sort(layers.begin(), layers.end(),
                   [](const ValueLayer* a, const ValueLayer* b) { return a->origin < b->origin; });
  for (const ValueLayer* layer : layers) {
    for (const auto& [dest, value] : layer->values) {
      const OptionSpec* spec = index_.find_dest(dest);
      PENTATRON_CHECK(spec != nullptr && spec->field.set != nullptr, kInternal,
                      "{} {}: no option has the destination {}", to_string(layer->origin),
                      layer->label, dest);
      spec->field.set(parsed_.config, value);
      parsed_.origins.insert_or_assign(dest, ValueOrigin{layer->origin, layer->label});
    }
  }
}

void Parser::apply(const Assignment& assignment) {
  const OptionSpec& spec = *assignment.spec;
  if (assignment.is_null) {
    if (assignment.origin == Origin::kSet && spec.field.set != nullptr) {
      spec.field.set(parsed_.config, spec.field.get(RunConfig{}));
      parsed_.origins.erase(std::string(spec.dest));
    }
    return;  // in a file: not set
  }
  // A file may hold every switch of a run, most of them off.
  if (is_switch(spec.kind) && assignment.origin != Origin::kCommandLine &&
      spec.option_class != OptionClass::kWorks) {
    const std::optional<OptionValue> value = convert_switch(assignment);
    if (!value || python_text(*value, true) == spec.default_repr) return;
  }
  if (spec.option_class == OptionClass::kAlwaysSo) {
    accept(assignment, parsed_.always_so, spec.reason);
  } else if (spec.option_class == OptionClass::kSynonym) {
    if (convert(assignment)) synonyms_.push_back(&assignment);
  } else if (spec.option_class == OptionClass::kNoEffect) {
    accept(assignment, parsed_.no_effect, spec.reason);
  } else if (spec.option_class != OptionClass::kWorks) {
    if (asks_for_default(assignment)) {
      add_note(parsed_.always_so, {assignment.spelled, "the default"});
    } else {
      refuse(assignment);
    }
  } else if (std::optional<OptionValue> value = convert(assignment)) {
    const auto before = parsed_.origins.find(std::string(spec.dest));
    if (spec.repeats && before != parsed_.origins.end() &&
        before->second.origin == assignment.origin) {
      auto list = std::get<std::vector<std::string>>(spec.field.get(parsed_.config));
      for (std::string& item : std::get<std::vector<std::string>>(*value)) {
        list.push_back(std::move(item));
      }
      *value = std::move(list);
    }
    spec.field.set(parsed_.config, *value);
    parsed_.origins.insert_or_assign(std::string(spec.dest),
                                     ValueOrigin{assignment.origin, assignment.where});
  }
}

void Parser::accept(const Assignment& assignment, std::vector<OptionNote>& notes,
                    std::string_view reason) {
  const std::optional<OptionValue> value = convert(assignment);
  if (!value) return;
  if (assignment.spec->field.set != nullptr) {
    assignment.spec->field.set(parsed_.config, *value);
    parsed_.origins.insert_or_assign(std::string(assignment.spec->dest),
                                     ValueOrigin{assignment.origin, assignment.where});
  }
  add_note(notes, {assignment.spelled, std::string(reason)});
}

// In the order of the rows, not of the words: --use-rotary-position-embeddings beside
// --no-position-embedding means rotary ones, as scripts of Megatron-LM have it.
void Parser::apply_synonyms() {
  std::stable_sort(synonyms_.begin(), synonyms_.end(),
                   [](const Assignment* a, const Assignment* b) { return a->spec < b->spec; });
  for (const Assignment* synonym : synonyms_) {
    const std::string_view text = synonym->spec->stands_for;
    const std::size_t equals = text.find('=');
    const OptionSpec* target = index_.find_dest(text.substr(0, equals));
    PENTATRON_CHECK(equals != std::string_view::npos && target != nullptr, kInternal,
                    "{} stands for {}, which is no option", synonym->spelled, text);
    const std::string_view name = split_words(target->names, ' ').front();
    if (set_by_user(parsed_.origins, target->dest)) {
      add_note(
          parsed_.no_effect,
          {synonym->spelled, fmt::format("{} {} says it", name,
                                         python_text(target->field.get(parsed_.config), false))});
      continue;
    }
    Assignment assignment = *synonym;
    assignment.spec = target;
    assignment.words = {std::string(text.substr(equals + 1))};
    apply(assignment);
    add_note(parsed_.always_so,
             {synonym->spelled, fmt::format("stands for {} {}", name, assignment.words.front())});
  }
}

void Parser::add_note(std::vector<OptionNote>& notes, OptionNote note) {
  const bool is_new = std::none_of(notes.begin(), notes.end(), [&](const OptionNote& other) {
    return other.spelled == note.spelled;
  });
  if (is_new) notes.push_back(std::move(note));
}

void Parser::refuse(const Assignment& assignment) {
  const bool planned = assignment.spec->option_class == OptionClass::kPlanned;
  problems_.add(
      fmt::format("{}{}: {}: {}",
                  assignment.origin == Origin::kFile ? assignment.where + ": " : std::string(),
                  assignment.spelled, planned ? "not supported yet" : "not supported",
                  assignment.spec->reason),
      assignment.spec->dest);
}

// What is not built yet is not asked for by its default value. A value that cannot be read is no
// default: the refusal says all that is to be said of the option.
bool Parser::asks_for_default(const Assignment& assignment) const {
  const OptionSpec& spec = *assignment.spec;
  if (spec.option_class != OptionClass::kPlanned || is_switch(spec.kind)) return false;
  const Converted converted = convert_words(spec, assignment.words);
  return converted.value && python_text(*converted.value, true) == spec.default_repr;
}

std::optional<OptionValue> Parser::convert(const Assignment& assignment) {
  if (is_switch(assignment.spec->kind)) return convert_switch(assignment);
  Converted converted = convert_words(*assignment.spec, assignment.words);
  if (converted.value) return std::move(converted.value);
  std::string text;
  for (const std::string& word : assignment.words) text += " " + quoted_for_message(word);
  problems_.add(
      fmt::format("{}{}{}: {}",
                  assignment.origin == Origin::kFile ? assignment.where + ": " : std::string(),
                  assignment.spelled, text, converted.expected),
      assignment.spec->dest);
  return std::nullopt;
}

std::optional<OptionValue> Parser::convert_switch(const Assignment& assignment) {
  const OptionSpec& spec = *assignment.spec;
  bool present = true;
  if (assignment.origin != Origin::kCommandLine) {
    const std::optional<bool> flag =
        assignment.words.size() == 1 ? parse_flag(assignment.words.front()) : std::nullopt;
    if (!flag) {
      problems_.add(
          fmt::format("{}: {}: expected true or false", assignment.where, assignment.spelled),
          spec.dest);
      return std::nullopt;
    }
    if (assignment.by_destination) return OptionValue{*flag};
    present = *flag;
  }
  return OptionValue{turns_off(assignment) ? !present : present};
}

// One field holds the precision, so a later origin replaces it; within one origin two switches
// contradict each other.
void Parser::check_precision() {
  for (const auto* list : {&from_files_, &from_words_, &from_set_}) {
    std::set<std::string_view> on;
    for (const Assignment& assignment : *list) {
      const std::string_view dest = assignment.spec->dest;
      if (dest != "bf16" && dest != "fp16" && dest != "fp64") continue;
      if (assignment.is_null) continue;
      if (assignment.words.empty() || parse_flag(assignment.words.front()).value_or(false)) {
        on.insert(dest);
      }
    }
    if (on.size() > 1) {
      problems_.add(fmt::format("--{} exclude each other: give one", fmt::join(on, " and --")),
                    "bf16");
    }
  }
}

// One process plays a rank of a world that is not there; several are refused.
bool Parser::is_launched_dry_run(const LaunchEnv& env) {
  if (!parsed_.program_values.contains("--dry-run")) {
    if (parsed_.program_values.contains("--dry-run-json")) {
      problems_.add("--dry-run-json needs --dry-run");
    }
    return false;
  }
  parsed_.config.parallel.distributed_backend = "fake";
  if (env.world_size.value_or(1) == 1) return false;
  problems_.add(
      fmt::format("--dry-run is one process, but the launcher started {} ({} is set): start it "
                  "without the launcher, with --world-size {}",
                  *env.world_size, env.source, *env.world_size),
      "world_size");
  return true;
}

}  // namespace

ParsedOptions parse_into(const ParseRequest& request, Problems& problems) {
  return Parser(request, problems).run();
}

ParsedOptions parse(const ParseRequest& request) {
  Problems problems;
  ParsedOptions parsed = parse_into(request, problems);
  if (parsed.action != Action::kHelp) problems.throw_if_any();
  return parsed;
}

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "pentatron/config/config.h"

// The option tables: one row an option. Options that work have a constexpr row in the table file of
// their topic, the rest of Megatron-LM's come from embedded data (known_options.h). Everything else
// of the mechanism (parser, help, argument dump, documentation) reads these rows.
namespace pentatron::config {

// How a value is written; nargs makes a list of any of them.
enum class OptionKind {
  kInt,
  kFloat,
  kString,
  kSwitchOn,    // presence sets true
  kSwitchOff,   // presence sets the destination false
  kSwitchPair,  // first spelling sets true, second false
  kSignal,      // a signal's name or number; stored as its name
};

enum class OptionClass {
  kWorks,     // has an effect, shown by a named test
  kAlwaysSo,  // asks for what is always done: accepted, named in one line at start
  kSynonym,   // an old spelling of another option's value (OptionSpec::stands_for): accepted
  kNoEffect,  // cannot change a result: accepted, named in one line at start
  kPlanned,   // known, refused until it is built, except with the value that is its default
  kNever,     // known, refused for good
};

enum class Topic {
  kRun,
  kModel,
  kParallel,
  kPrecision,
  kData,
  kOptimizer,
  kTraining,
  kCheckpoint,
  kLogging,
  kMoe,
  kInference,
  kRl,
  kLegacy,
};
inline constexpr int kNumTopics = 13;

// monostate: not set (Python's None).
using OptionValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>>;

// What a resumed run makes of another value than the checkpoint's.
enum class Resume {
  kOfPart,    // what the field's struct says: ModelConfig kModel, OptimizerConfig kSchedule, else
              // kFree
  kModel,     // another model: refused
  kNumerics,  // the same model, computed otherwise: the run goes on as asked and says so
  kRun,       // another run: refused
  kSchedule,  // part of the schedule (training/train_state.h): refused unless overridden
  kFree,      // changes no result, or the checkpoint says so by other means
};

// Where the value lives in RunConfig; null for rows that have no field. `set` wants the alternative
// that fits the kind (a float field also takes an integer).
struct Binding {
  void (*set)(RunConfig&, const OptionValue&) = nullptr;
  OptionValue (*get)(const RunConfig&) = nullptr;
  std::string_view part = {};  // the struct in RunConfig; empty: a view on another field
};

// Values that make another value count.
struct Condition {
  bool (*holds)(const RunConfig&) = nullptr;  // null: it always counts
  std::string_view otherwise = {};            // why the value has no effect
};

// Rule on a converted value: empty when it holds, else what was expected ("at least 1").
using ValueCheck = std::string_view (*)(const OptionValue&);

struct OptionSpec {
  std::string_view
      names;  // all spellings, separated by blanks; the documentation leads with the first
  std::string_view dest;
  OptionKind kind = OptionKind::kString;
  char nargs = 0;        // 0: one value; '+', '*' or a digit: a list
  bool repeats = false;  // given again in the same place, it adds to the list
  std::string_view default_repr =
      "None";  // Python repr, equal to Megatron's unless default_note says why not
  std::string_view choices = {};    // Megatron's, separated by '|'; empty: any
  std::string_view supported = {};  // the values that work here; empty: all choices
  ValueCheck check = nullptr;
  Topic topic = Topic::kModel;
  OptionClass option_class = OptionClass::kWorks;
  std::string_view help = {};
  std::string_view reason = {};  // why refused (also for unsupported choices), what is always so,
                                 // or why it has no effect
  // Synonym: destination and value that it sets where nothing else does, "dest=value".
  std::string_view stands_for = {};
  std::string_view test = {};          // works: the test that fails when the option is ignored
  std::string_view default_note = {};  // why the default or the choices differ from Megatron's
  Condition needs = {};                // option_conditions.h
  Resume resume = Resume::kOfPart;
  Binding field = {};
  OptionValue (*shown)(const RunConfig&) = nullptr;  // the dump's value; null: the field's
  bool ours = false;                                 // no option of Megatron
};

// A field of RunConfig by name, for what walks over all of them.
struct ConfigField {
  std::string_view part;  // "model"
  std::string_view name;  // the destination
  ValueCheck check;       // of the row
  Resume resume;          // never kOfPart
  Binding binding;
};

[[nodiscard]] std::span<const OptionSpec> run_options();
[[nodiscard]] std::span<const OptionSpec> model_options();
[[nodiscard]] std::span<const OptionSpec> latent_options();
[[nodiscard]] std::span<const OptionSpec> rotary_options();
[[nodiscard]] std::span<const OptionSpec> mup_options();
[[nodiscard]] std::span<const OptionSpec> fp8_options();
[[nodiscard]] std::span<const OptionSpec> adapter_options();
[[nodiscard]] std::span<const OptionSpec> parallel_options();
[[nodiscard]] std::span<const OptionSpec> pipeline_options();
[[nodiscard]] std::span<const OptionSpec> data_options();
[[nodiscard]] std::span<const OptionSpec> optimizer_options();
[[nodiscard]] std::span<const OptionSpec> training_options();
[[nodiscard]] std::span<const OptionSpec> logging_options();
[[nodiscard]] std::span<const OptionSpec> checkpoint_options();
[[nodiscard]] std::span<const OptionSpec> always_so_options();

// Every row of every table, the hand-written ones first.
[[nodiscard]] std::vector<const OptionSpec*> all_options();

// Every field once: those of the rows, then those that no option sets by itself.
[[nodiscard]] std::vector<ConfigField> config_fields();

// The words of a blank- or bar-separated list, in order.
[[nodiscard]] std::vector<std::string_view> split_words(std::string_view text, char separator);

[[nodiscard]] std::string_view to_string(OptionClass option_class);
[[nodiscard]] std::string_view to_string(Topic topic);
[[nodiscard]] bool is_switch(OptionKind kind);
// Whether an option of this class may stand on a command line with any of its values.
[[nodiscard]] bool is_accepted(OptionClass option_class);

// The value that the dump shows and the tests compare: the field's, or not set when Megatron's
// default is None and the field still holds its initial value.
[[nodiscard]] OptionValue current_value(const OptionSpec& spec, const RunConfig& config);

// Text as Python's repr() prints it; strings bare when `quote_strings` is false (as str() does).
[[nodiscard]] std::string python_text(const OptionValue& value, bool quote_strings);

}  // namespace pentatron::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/config/option_words.h"

// One subcommand a file. Commands throw pentatron::Error; main maps its kind to the exit code.
namespace pentatron::apps {

using Words = std::vector<std::string>;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Words& words);
};
[[nodiscard]] std::span<const Command> commands();

int pretrain_gpt(const Words& words);
int launch(const Words& words);
int preprocess_data(const Words& words);
int inspect_dataset(const Words& words);
int merge_datasets(const Words& words);
int prepare_cache(const Words& words);
int build_sequences_per_dataset(const Words& words);
int train_tokenizer(const Words& words);
int generate(const Words& words);
int score(const Words& words);
int evaluate(const Words& words);
int checkpoint(const Words& words);
int convert(const Words& words);
int plot(const Words& words);
int watch(const Words& words);
int plan_schedule(const Words& words);
int profile(const Words& words);
int bench(const Words& words);
int options(const Words& words);
int doctor(const Words& words);
int completion(const Words& words);
int man(const Words& words);

// The options of the subcommands that are not training programs: declared rows only, all problems
// at once. Words are split as a run's are (config/option_words.h); a row has no field of the
// configuration, no class, origin or rule for resumed runs, so it is not config/option_table.h's.
class Flags final {
 public:
  struct Spec {
    std::string name;   // "--input"
    std::string value;  // "FILE"; empty: a switch
    std::string help;
    std::string default_text =
        {};  // shown and used when absent; ignored for required ones and switches
    bool required = false;
    bool many = false;                   // takes every word up to the next option; may be repeated
    std::vector<std::string> also = {};  // further spellings; _ is - in all of them
  };

  // `positionals`: names of the words without a name, all required; "NAME..." as the last: one or
  // more. On --help prints `usage` and
  // the table and sets help().
  Flags(std::string command, const std::string& description, std::vector<std::string> positionals,
        std::vector<Spec> specs, const Words& words);

  [[nodiscard]] bool help() const { return help_; }
  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t least) const;
  [[nodiscard]] double number(std::string_view name, double least) const;
  [[nodiscard]] const std::string& positional(std::size_t i) const { return positionals_.at(i); }
  [[nodiscard]] const std::vector<std::string>& positionals() const { return positionals_; }

 private:
  // One option and its values; what is wrong is added to `problems`.
  void read_option(config::OptionWord option, config::OptionWords& line,
                   std::vector<std::string>& problems);
  void check_required(const std::vector<std::string>& positionals,
                      std::vector<std::string>& problems) const;
  [[nodiscard]] const Spec& spec(std::string_view name) const;
  void print_help(const std::string& description, const std::vector<std::string>& names) const;

  std::string command_;
  std::vector<Spec> specs_;
  std::vector<std::pair<std::string, std::vector<std::string>>> values_;
  std::vector<std::string> positionals_;
  bool help_ = false;
};

// The one of `names` that `word` was likely meant to be: few edits for its length, and no other as
// near. Empty: none.
[[nodiscard]] std::string near_name(const std::string& word, const std::vector<std::string>& names);

// A word as an integer of at least `least`, else kConfig naming the option.
[[nodiscard]] std::int64_t parse_integer(std::string_view option, std::string_view word,
                                         std::int64_t least);

}  // namespace pentatron::apps

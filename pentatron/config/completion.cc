// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/completion.h"

#include <fmt/format.h>

#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/option_table.h"

namespace pentatron::config {
namespace {

// One spelling of an option that a command line may hold.
struct Spelling {
  std::string_view name;
  const OptionSpec* spec;
};

std::vector<Spelling> accepted_spellings() {
  std::vector<Spelling> spellings;
  for (const OptionSpec* spec : all_options()) {
    if (!is_accepted(spec->option_class)) continue;
    for (const std::string_view name : split_words(spec->names, ' ')) {
      if (name.starts_with("--")) spellings.push_back({name, spec});
    }
  }
  return spellings;
}

std::vector<std::string_view> values_of(const OptionSpec& spec) {
  const std::string_view works = spec.supported.empty() ? spec.choices : spec.supported;
  return works.empty() ? std::vector<std::string_view>{} : split_words(works, '|');
}

std::string_view meaning(const OptionSpec& spec) {
  return spec.option_class == OptionClass::kWorks ? spec.help : spec.reason;
}

// `escaped` characters get a backslash.
std::string escape(std::string_view text, std::string_view escaped) {
  std::string out;
  for (const char c : text) {
    if (escaped.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Inside single quotes of a POSIX shell.
std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_script(std::span<const CommandSummary> commands) {
  std::string names, options, values;
  for (const CommandSummary& command : commands) names += fmt::format(" {}", command.name);
  for (const Spelling& spelling : accepted_spellings()) {
    options += fmt::format(" {}", spelling.name);
    const std::vector<std::string_view> words = values_of(*spelling.spec);
    if (words.empty()) continue;
    values += fmt::format("      {}) words=\"{}\" ;;\n", spelling.name, fmt::join(words, " "));
  }
  return fmt::format(
      R"sh(# bash completion of pentatron, written by `pentatron completion bash`.
_pentatron() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="${{COMP_WORDS[1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{}"
  elif [ "$command" = pretrain_gpt ]; then
    case "$previous" in
{}    esac
    case "$current" in
      -*) words="{}" ;;
    esac
  else
    case "$current" in
      -*) words="$("${{COMP_WORDS[0]}}" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9_-]*')" ;;
    esac
  fi
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _pentatron pentatron
)sh",
      names.substr(1), values, options.substr(1));
}

std::string zsh_script(std::span<const CommandSummary> commands) {
  std::string names, options;
  for (const CommandSummary& command : commands) {
    names +=
        fmt::format("    {}\n", single_quoted(fmt::format("{}:{}", command.name, command.summary)));
  }
  for (const Spelling& spelling : accepted_spellings()) {
    std::string entry =
        fmt::format("*{}[{}]", spelling.name, escape(meaning(*spelling.spec), "[]:\\"));
    const std::vector<std::string_view> words = values_of(*spelling.spec);
    if (!is_switch(spelling.spec->kind)) {
      entry += words.empty() ? ":value:_files" : fmt::format(":value:({})", fmt::join(words, " "));
    }
    options += fmt::format("      {} \\\n", single_quoted(entry));
  }
  return fmt::format(
      R"sh(#compdef pentatron
# zsh completion of pentatron, written by `pentatron completion zsh`.
_pentatron() {{
  local -a commands options
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
  elif [[ $words[2] == pretrain_gpt ]]; then
    shift words
    (( CURRENT-- ))
    _arguments \
{}      '*:file:_files'
  else
    options=(${{(f)"$($words[1] $words[2] --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9_-]*')"}})
    compadd -a options
    _files
  fi
}}
_pentatron "$@"
)sh",
      names, options);
}

std::string fish_script(std::span<const CommandSummary> commands) {
  std::string text =
      "# fish completion of pentatron, written by `pentatron completion fish`.\n"
      "complete -c pentatron -f -n __fish_use_subcommand\n";
  std::string others;
  for (const CommandSummary& command : commands) {
    text += fmt::format("complete -c pentatron -n __fish_use_subcommand -a {} -d '{}'\n",
                        command.name, escape(command.summary, "'\\"));
    if (command.name != "pretrain_gpt") others += fmt::format(" {}", command.name);
  }
  for (const Spelling& spelling : accepted_spellings()) {
    const std::vector<std::string_view> words = values_of(*spelling.spec);
    text += fmt::format(
        "complete -c pentatron -n '__fish_seen_subcommand_from pretrain_gpt' -l {} -d '{}'{}\n",
        spelling.name.substr(2), escape(meaning(*spelling.spec), "'\\"),
        is_switch(spelling.spec->kind) ? ""
        : words.empty()                ? " -r"
                                       : fmt::format(" -x -a '{}'", fmt::join(words, " ")));
  }
  return text + fmt::format(
                    "complete -c pentatron -n '__fish_seen_subcommand_from{}' -a '(pentatron "
                    "(commandline -opc)[2] --help 2>/dev/null | string match -ra -- "
                    "\"--[a-z][a-z0-9_-]*\")'\n",
                    others);
}

// Text in the man macros: hyphens that stay hyphens, no line that begins as a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string man_option(const OptionSpec& spec) {
  std::string names;
  for (const std::string_view name : split_words(spec.names, ' ')) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  }
  const std::vector<std::string_view> words = values_of(spec);
  if (!is_switch(spec.kind)) {
    names += words.empty() ? std::string(" \\fIvalue\\fR")
                           : fmt::format(" {{{}}}", roff(fmt::format("{}", fmt::join(words, "|"))));
  }
  std::string text = fmt::format(".TP\n{}\n{}", names, roff(meaning(spec)));
  if (spec.option_class != OptionClass::kWorks) {
    text += fmt::format(" ({})", to_string(spec.option_class));
  } else if (!is_switch(spec.kind) && spec.default_repr != "None") {
    text += fmt::format("; default {}", roff(spec.default_repr));
  }
  return text + "\n";
}

}  // namespace

Shell parse_shell(std::string_view name) {
  if (name == "bash") return Shell::kBash;
  if (name == "zsh") return Shell::kZsh;
  if (name == "fish") return Shell::kFish;
  PENTATRON_THROW(kConfig, "no completion for the shell {}; there are bash, zsh and fish",
                  quoted_for_message(name));
}

std::string completion_script(Shell shell, std::span<const CommandSummary> commands) {
  switch (shell) {
    case Shell::kBash:
      return bash_script(commands);
    case Shell::kZsh:
      return zsh_script(commands);
    case Shell::kFish:
      return fish_script(commands);
  }
  PENTATRON_THROW(kInternal, "unknown shell");
}

std::string man_page(std::string_view version, std::span<const CommandSummary> commands) {
  std::string text = fmt::format(
      ".TH PENTATRON 1 \"\" \"pentatron {}\" \"User Commands\"\n.ad l\n.SH NAME\npentatron \\- "
      "trains "
      "transformer language models\n.SH SYNOPSIS\n.B pentatron\n.I command\n.RI [ options ]\n"
      ".SH DESCRIPTION\nTrains GPT and Llama kinds of models on one or many processes, with "
      "Megatron-LM's options, corpora and launch environment.\n"
      "\\fBpentatron\\fR \\fIcommand\\fR \\fB\\-\\-help\\fR tells the options of a command.\n"
      ".SH COMMANDS\n",
      version);
  for (const CommandSummary& command : commands) {
    text += fmt::format(".TP\n.B {}\n{}\n", roff(command.name), roff(command.summary));
  }
  text += ".SH OPTIONS OF PRETRAIN_GPT\n";
  for (int topic = 0; topic < kNumTopics; ++topic) {
    std::string options;
    for (const OptionSpec* spec : all_options()) {
      if (spec->topic != static_cast<Topic>(topic) || !is_accepted(spec->option_class)) continue;
      options += man_option(*spec);
    }
    if (options.empty()) continue;
    text += fmt::format(".SS {}\n{}", to_string(static_cast<Topic>(topic)), options);
  }
  text += ".SH EXIT STATUS\n0 success";
  for (const ErrorKind kind :
       {ErrorKind::kConfig, ErrorKind::kData, ErrorKind::kIo, ErrorKind::kCuda, ErrorKind::kComm,
        ErrorKind::kCheckpoint, ErrorKind::kUnsupported, ErrorKind::kInternal}) {
    text += fmt::format(", {} {}", exit_code(kind), to_string(kind));
  }
  return text + " error.\n.SH SEE ALSO\n.BR torchrun (1),\n.BR srun (1)\n";
}

}  // namespace pentatron::config

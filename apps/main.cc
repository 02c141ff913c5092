// SPDX-License-Identifier: Apache-2.0
// The program `pentatron`: one file a subcommand; errors become one message and an exit code by
// kind.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/stop_cleanup.h"
#include "pentatron/config/option_index.h"

namespace pentatron::apps {
namespace {

constexpr Command kCommands[] = {
    {"pretrain_gpt", "train a GPT-2 or Llama kind of model", &pretrain_gpt},
    {"launch", "start a command on several processes of this machine", &launch},
    {"preprocess_data", "tokenise JSONL into .bin/.idx", &preprocess_data},
    {"inspect_dataset", "what a .bin/.idx corpus holds", &inspect_dataset},
    {"train_tokenizer", "train a byte-level BPE on text", &train_tokenizer},
    {"generate", "write text with a trained checkpoint", &generate},
    {"checkpoint", "inspect, verify or hash a checkpoint", &checkpoint},
    {"plot", "draw the loss of a metrics file as SVG", &plot},
    {"options", "every Megatron option and what becomes of it here", &options},
};

void print_usage() {
  std::string text =
      "pentatron " PENTATRON_VERSION
      ": trains transformer language models\n\nusage: pentatron COMMAND [options]\n\ncommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<18}{}\n", command.name, command.summary);
  }
  text += "\npentatron COMMAND --help tells the options of a command.";
  log::print_line(text);
}

int dispatch(const Words& words) {
  if (words.empty() || words.front() == "--help" || words.front() == "-h" ||
      words.front() == "help") {
    print_usage();
    return words.empty() ? exit_code(ErrorKind::kConfig) : 0;
  }
  if (words.front() == "--version") {
    log::print_line("pentatron " PENTATRON_VERSION " (libtorch 2.11.0, CPU)");
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name == words.front()) return command.run(Words(words.begin() + 1, words.end()));
  }
  std::string near;
  for (const Command& command : kCommands) {
    constexpr int kMostEdits = 3;
    if (config::edit_distance(words.front(), command.name, kMostEdits) <= kMostEdits) {
      near = fmt::format(", did you mean {}?", command.name);
    }
  }
  PENTATRON_THROW(kConfig, "no command named '{}'{} pentatron --help lists them", words.front(),
                  near.empty() ? ";" : near);
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace pentatron::apps

int main(int argc, char** argv) {
  using namespace pentatron;
  // A reader that goes away (| head) must not kill a training run; writes then fail and are noticed
  // below.
  (void)std::signal(SIGPIPE, SIG_IGN);
  try {
    const StopCleanup stop_cleanup;
    const int code = apps::dispatch(apps::Words(argv + 1, argv + argc));
    const bool training = argc > 1 && std::string_view(argv[1]) == "pretrain_gpt";
    if (code == 0 && !training && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
      log::error("io error: the result could not be written to standard output");
      return exit_code(ErrorKind::kIo);
    }
    return code;
  } catch (const Error& error) {
    log::error("{} error: {}", to_string(error.kind()), error.what());
    if (error.kind() == ErrorKind::kInternal) {
      log::error("this is a bug of pentatron, thrown at {}", error.where());
    }
    return exit_code(error.kind());
  } catch (const std::filesystem::filesystem_error& error) {
    log::error("io error: {}", error.what());
    return exit_code(ErrorKind::kIo);
  } catch (const std::bad_alloc&) {
    log::error("out of memory: use a smaller --micro-batch-size or model, or more ranks");
    return exit_code(ErrorKind::kIo);
  } catch (const std::exception& error) {
    log::error("internal error: {}", error.what());
    return exit_code(ErrorKind::kInternal);
  }
}

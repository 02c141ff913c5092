// SPDX-License-Identifier: Apache-2.0
// The program `pentatron`: one file a subcommand; errors become one message and an exit code by
// kind.
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "apps/command.h"
#include "pentatron/base/busy_machine.h"
#include "pentatron/base/current_folder.h"
#include "pentatron/base/error.h"
#include "pentatron/base/error_line.h"
#include "pentatron/base/log.h"
#include "pentatron/base/mapping_faults.h"
#include "pentatron/base/printable.h"
#include "pentatron/base/screen.h"
#include "pentatron/base/standard_descriptors.h"
#include "pentatron/base/stop_cleanup.h"
#include "pentatron/comm/rank_errors.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/out_of_memory.h"
#include "pentatron/version.h"

namespace pentatron::apps {
namespace {

// What is here, for a bug report.
std::string version_text() {
  std::string text = fmt::format("pentatron {}\nlibtorch {}\ncompiler {}\n", pentatron::version(),
                                 TORCH_VERSION, __VERSION__);
  const tensor::CudaLibrary& library = tensor::load_cuda_library();
  if (!library.available) return text + fmt::format("CUDA library not in use: {}", library.reason);
  const tensor::CudaVersions versions = tensor::cuda_versions();
  text += fmt::format(
      "CUDA library in use: runtime {}, driver {}, NCCL {}, cuDNN {}",
      tensor::cuda_version_text(versions.runtime), tensor::cuda_version_text(versions.driver),
      tensor::nccl_version_text(versions.nccl), tensor::cudnn_version_text(versions.cudnn));
  const std::vector<tensor::GpuInfo> gpus = tensor::gpus();
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    text += fmt::format("\nGPU {}: {}, compute capability {}.{}, {} GiB, {} multiprocessors", i,
                        gpus[i].name, gpus[i].major, gpus[i].minor, gpus[i].memory_bytes >> 30,
                        gpus[i].multiprocessors);
  }
  return text;
}

int version(const Words& words) {
  const Flags flags(
      "version",
      "Tells the versions of the program, of its libraries and of the GPUs that were found: what a "
      "bug report needs.",
      {}, {}, words);
  if (!flags.help()) log::print_line(version_text());
  return 0;
}

constexpr Command kCommands[] = {
    {"pretrain_gpt", "train a GPT-2 or Llama kind of model", &pretrain_gpt},
    {"launch", "start a command on several processes of this machine", &launch},
    {"preprocess_data", "tokenise JSONL into .bin/.idx", &preprocess_data},
    {"inspect_dataset", "what a .bin/.idx corpus holds", &inspect_dataset},
    {"merge_datasets", "join .bin/.idx corpora into one", &merge_datasets},
    {"prepare_cache", "build the index caches of a run ahead of it", &prepare_cache},
    {"build_sequences_per_dataset", "count the sequences of a blend's corpora",
     &build_sequences_per_dataset},
    {"train_tokenizer", "train a byte-level BPE on text", &train_tokenizer},
    {"generate", "write text with a trained checkpoint", &generate},
    {"score", "log-probabilities of given text under a checkpoint", &score},
    {"evaluate", "WikiText perplexity, LAMBADA or bits per byte of a checkpoint", &evaluate},
    {"checkpoint", "inspect, verify or hash a checkpoint", &checkpoint},
    {"convert", "Hugging Face folders to checkpoints and back", &convert},
    {"plot", "draw metrics of one or several runs as SVG or PNG", &plot},
    {"watch", "a page that follows runs while they train", &watch},
    {"plan_schedule", "draw and compare pipeline schedules without a model", &plan_schedule},
    {"profile", "where the time of a traced run went", &profile},
    {"bench", "what this machine can do, and how near training comes to it", &bench},
    {"options", "every Megatron option and what becomes of it here", &options},
    {"doctor", "what this machine has, what is missing, what to do", &doctor},
    {"completion", "a completion script for bash, zsh or fish", &completion},
    {"man", "the manual page", &man},
    {"version", "versions of the program, its libraries and the GPUs", &version},
};

std::vector<std::string> names_of(std::span<const Command> all) {
  std::vector<std::string> names;
  for (const Command& command : all) names.emplace_back(command.name);
  return names;
}

void print_usage() {
  std::string text = fmt::format(
      "pentatron {}: trains transformer language models\n\nusage: pentatron COMMAND "
      "[options]\n\ncommands:\n",
      pentatron::version());
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<29}{}\n", command.name, command.summary);
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
  if (words.front() == "--version" || words.front() == "-V") return version({});
  for (const Command& command : kCommands) {
    if (command.name == words.front()) return command.run(Words(words.begin() + 1, words.end()));
  }
  const std::string near = near_name(words.front(), names_of(kCommands));
  PENTATRON_THROW(kConfig, "no command named '{}'{} pentatron --help lists them",
                  printable(words.front(), 80),
                  near.empty() ? ";" : fmt::format(", did you mean {}?", near));
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace pentatron::apps

namespace {

// Before the constructors of the libraries, which open files as well.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kFillStandardDescriptors)() = &pentatron::fill_standard_descriptors;
// One of those ends the program where there is no current folder, with words that mislead.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kRequireCurrentFolder)() = &pentatron::require_current_folder;

// Under `pentatron launch` the launcher prints it, once for all ranks that failed alike.
void print_error(const std::string& message) {
  using namespace pentatron;
  const std::string& label = log::thread_label();
  if (!comm::tell_launcher(true, label, message)) print_error_line(label, message);
}

// A reader that had enough (| head) is no failure worth a word; shells know this code for it.
constexpr int kReaderGone = 128 + SIGPIPE;

int run(int argc, char** argv) {
  using namespace pentatron;
  // A reader that goes away (| head) must not kill a training run; writes then fail and are noticed
  // below.
  (void)std::signal(SIGPIPE, SIG_IGN);
  // Nor a limit on the size of files: a write beyond it fails and says so, as on a full disk.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  tell_mapping_faults();
  try {
    const StopCleanup stop_cleanup;
    const int code = apps::dispatch(apps::Words(argv + 1, argv + argc));
    const bool training = argc > 1 && std::string_view(argv[1]) == "pretrain_gpt";
    if (code == 0 && !training && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
      if (screen::reader_is_gone()) return kReaderGone;
      print_error("the result could not be written to standard output");
      return exit_code(ErrorKind::kIo);
    }
    return code;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo && screen::reader_is_gone()) return kReaderGone;
    const bool bug = error.kind() == ErrorKind::kInternal;
    print_error(bug ? fmt::format("{}\nthis is a bug of pentatron, thrown at {}", error.what(),
                                  error.where())
                    : error.what());
    return exit_code(error.kind());
  } catch (const std::filesystem::filesystem_error& error) {
    print_error(error.what());
    return exit_code(ErrorKind::kIo);
  } catch (const std::bad_alloc&) {
    print_error("out of memory: use a smaller --micro-batch-size or model, or more ranks");
    return tensor::kOutOfMemoryExitCode;
  } catch (const std::exception& error) {
    if (const std::string memory = tensor::out_of_memory_text(error); !memory.empty()) {
      print_error(memory);
      return tensor::kOutOfMemoryExitCode;
    }
    print_error(fmt::format("internal error: {}", error.what()));
    return exit_code(ErrorKind::kInternal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::array<std::string_view, 4> kComputing = {"pretrain_gpt", "generate", "score",
                                                          "evaluate"};
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (std::find(kComputing.begin(), kComputing.end(), command) != kComputing.end()) {
    pentatron::give_way_when_busy(argv);
  }
  const int code = run(argc, argv);
  // With a GPU in use the destructors of the libraries could meet a driver that is shutting down.
  if (pentatron::tensor::release_devices()) {
    (void)std::fflush(stdout);
    (void)std::fflush(stderr);
    ::_exit(code);
  }
  return code;
}

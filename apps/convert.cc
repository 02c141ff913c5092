// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/conversion/export.h"
#include "pentatron/conversion/import.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::apps {
namespace {

constexpr double kGb = 1e9;

// The options of the other direction are refused, not passed over.
void check_options(const Flags& flags, const std::string& action) {
  const bool imports = action == "import";
  PENTATRON_CHECK(flags.has(imports ? "--save" : "--load"), kConfig,
                  "pentatron convert {}: {} is missing", action, imports ? "--save" : "--load");
  const std::vector<std::string> others =
      imports ? std::vector<std::string>{"--load", "--ckpt-step",      "--family",
                                         "--like", "--max-shard-size", "--adapter"}
              : std::vector<std::string>{"--save"};
  for (const std::string& name : others) {
    PENTATRON_CHECK(!flags.has(name), kConfig, "pentatron convert {}: {} belongs to convert {}",
                    action, name, imports ? "export" : "import");
  }
}

void report(const char* what, const conversion::Converted& done) {
  log::print_line(fmt::format("{} {}: family {}, {} tensors, {:.3f} GB", what, done.folder.string(),
                              done.family, done.tensors, static_cast<double>(done.bytes) / kGb));
}

}  // namespace

int convert(const Words& words) {
  const Flags flags(
      "convert",
      "import: a Hugging Face folder (config.json, safetensors, tokenizer files) becomes a "
      "checkpoint that --load --finetune and generate take. export: a checkpoint becomes such a "
      "folder. Import and export give the same files back. Nothing is overwritten.",
      {"import|export"},
      {{"--hf", "FOLDER", "the Hugging Face folder: read by import, written by export", "", true},
       {"--save", "FOLDER", "import: a new folder for the checkpoint", ""},
       {"--load", "FOLDER", "export: a --save folder, or one iteration's folder", ""},
       {"--ckpt-step", "N", "export: this iteration; 0: the newest", "0"},
       {"--dtype", "NAME", "fp32, bf16, fp16 or fp64; default: as the weights are stored", ""},
       {"--family", "NAME",
        "export: as a model of this family, with a config.json made for it; default: what was "
        "imported, else the first family that fits",
        ""},
       {"--like", "FOLDER",
        "export: take config.json and tokenizer files of this Hugging Face folder", ""},
       {"--adapter", "",
        "export: the adapters of a run with --lora-rank alone, as PEFT's files; else they are "
        "merged into the weights",
        ""},
       {"--max-shard-size", "BYTES",
        "export: larger weights go into several files; default: the files that were imported, else "
        "5 GiB",
        ""}},
      words);
  if (flags.help()) return 0;
  const std::string& action = flags.positional(0);
  PENTATRON_CHECK(action == "import" || action == "export", kConfig,
                  "pentatron convert: expected import or export, got '{}'", action);
  check_options(flags, action);
  const std::string dtype = flags.text("--dtype");
  PENTATRON_CHECK(
      dtype.empty() || dtype == "fp32" || dtype == "bf16" || dtype == "fp16" || dtype == "fp64",
      kConfig, "--dtype {}: expected fp32, bf16, fp16 or fp64", dtype);
  tensor::set_up_rank_thread(1);
  if (action == "import") {
    report("imported into",
           conversion::import_hugging_face(
               {.hf = flags.text("--hf"), .save = flags.text("--save"), .dtype = dtype}));
    return 0;
  }
  report("exported to",
         conversion::export_hugging_face(
             {.load = flags.text("--load"),
              .step = flags.integer("--ckpt-step", 0),
              .hf = flags.text("--hf"),
              .dtype = dtype,
              .family = flags.text("--family"),
              .like = flags.text("--like"),
              .max_shard_bytes =
                  flags.has("--max-shard-size") ? flags.integer("--max-shard-size", 1) : 0,
              .adapter = flags.has("--adapter")}));
  return 0;
}

}  // namespace pentatron::apps

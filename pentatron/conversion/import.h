// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace pentatron::conversion {

struct ImportOptions {
  std::filesystem::path hf;    // a Hugging Face folder
  std::filesystem::path save;  // a folder that is not there yet, or is empty
  std::string dtype = {};      // "fp32", "bf16", "fp16", "fp64"; empty: each tensor as it is stored
};

struct Converted {
  std::filesystem::path folder;
  std::string family;
  std::size_t tensors = 0;  // parts, or Hugging Face's tensors
  std::uint64_t bytes = 0;
};

// Weights of a Hugging Face folder as a checkpoint of iteration 0 that --load --finetune and
// generate take, with the options of config.json, and the folder's config.json and tokenizer files
// kept in the checkpoint's folder "tokenizer", with the layout of its weight files. A few MiB of
// the weights are in memory, of tensors that are stored transposed a sixteenth. Errors: those of
// inference::open_hugging_face() and checkpoint::save_checkpoint(); kConfig for a --save that holds
// something.
[[nodiscard]] Converted import_hugging_face(const ImportOptions& options);

}  // namespace pentatron::conversion

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/conversion/import.h"

namespace pentatron::conversion {

struct ExportOptions {
  std::filesystem::path load;  // a --save folder or one iteration's folder
  std::int64_t step = 0;       // 0: the newest
  std::filesystem::path hf;    // a folder that is not there yet
  std::string dtype = {};      // as ImportOptions::dtype
  // Empty: that of the kept config.json, else the first that fits. Named: config.json is made anew.
  std::string family = {};
  std::filesystem::path like = {};   // a Hugging Face folder whose config.json and files to take
  std::int64_t max_shard_bytes = 0;  // 0: the files that were imported, else 5 GiB
  // The adapters alone, as PEFT's adapter_config.json and adapter_model.safetensors.
  bool adapter = false;
};

// A checkpoint as a Hugging Face folder: config.json, model.safetensors or shards with an index,
// tokenizer files and a model card. What import kept is written back byte for byte; without it
// config.json is made from the options. Adapters are merged into the weights, in fp64 and rounded
// once, unless they alone are asked for. Written under another name, synced, read back, renamed. A
// few MiB of the weights are in memory, of tensors that are stored transposed a sixteenth. Errors:
// those of checkpoint::open_checkpoint(); kConfig for an `hf` that is there and for adapters that
// are not there; kUnsupported for a model that the family does not describe.
[[nodiscard]] Converted export_hugging_face(const ExportOptions& options);

}  // namespace pentatron::conversion

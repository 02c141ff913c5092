// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pentatron::datasets {

struct MergeOptions {
  std::vector<std::string> inputs;  // folders and prefixes
  std::string output_prefix;
  bool multimodal = false;  // every corpus must hold modes
  bool force = false;       // replace existing output
  // Called after each corpus and every 2 GiB of a large one.
  std::function<void(const std::string& line)> on_progress = {};
};

struct MergeStats {
  std::int64_t corpora = 0;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  bool modes = false;
};

// Prefixes of the corpora that `inputs` name, in order: a folder gives every PREFIX.bin and
// PREFIX.idx in it, in the order of the names' bytes; anything else is a prefix, with or without
// .bin or .idx. Errors: kConfig for a folder without a corpus, or a corpus that stands twice; kIo
// for a .bin without its .idx, or the other way round, and for a prefix that is not there.
[[nodiscard]] std::vector<std::string> list_corpora(const std::vector<std::string>& inputs);

// Writes the corpora one after the other into one, as Megatron's merge_datasets.py: tokens, lengths
// and modes of the sequences, documents. The corpora are checked in full first, so a damaged one
// (kData), another dtype or modes in some of them only (kConfig) end it before anything is written.
// Neither file is to be seen before both are whole; kIo leaves nothing behind. Memory does not grow
// with the corpora.
MergeStats merge_datasets(const MergeOptions& options);

}  // namespace pentatron::datasets

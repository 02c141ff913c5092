// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pentatron/datasets/cache_log.h"
#include "pentatron/datasets/corpus.h"
#include "pentatron/datasets/gpt_index.h"
#include "pentatron/datasets/index_file.h"
#include "pentatron/datasets/split.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// Megatron renamed its tokenizer class; the name is part of the description, so each version has
// cache files of its own.
enum class MegatronVersion { kNewer, k016 };

struct GptIndexRequest {
  std::string class_name = "GPTDataset";  // Megatron's, of the samples: part of the files' names
  std::string dataset_path;               // the prefix as the user wrote it
  SplitMatrix split_matrix;
  DataSplit split = DataSplit::kTrain;
  std::optional<std::int64_t> num_samples;  // none: one epoch
  std::int64_t sequence_length = 0;
  std::int64_t seed = 1234;
  tokenizers::TokenizerDescription tokenizer;  // its class name is set by the version
  std::string cache_path;            // --data-cache-path; empty: <prefix>/cache/{class}_indices
  bool use_cache = true;             // false: build, and touch no files (the mock corpus)
  bool keep_partial_sample = false;  // GptIndexSource's; no part of Megatron's description
  bool quiet = false;                // one of many members of a blend, which leaves the memory
  CacheLog* cache_log = nullptr;     // told what became of the cache; must outlive the request
  std::uint64_t largest_in_memory = kLargestInMemory;  // CacheEntry's
};

// The text that names an index: Python's json.dumps(indent=4) of Megatron's description, byte for
// byte.
[[nodiscard]] std::string gpt_index_description(const GptIndexRequest& request,
                                                MegatronVersion version);

// `{md5 of the description}-{class}-{split}`, the begin of the four cache files' names.
[[nodiscard]] std::string gpt_index_file_stem(const GptIndexRequest& request,
                                              MegatronVersion version);

[[nodiscard]] std::string gpt_index_cache_folder(const GptIndexRequest& request);

// Sequences of the request's part of the corpus; ErrorKind::kData when there are none.
[[nodiscard]] GptIndexSource gpt_index_source(const Corpus& corpus, const GptIndexRequest& request);

// Loads the indices of the cache (the newer version's files first) by their checksums, which are of
// the description, of the corpus's lengths and of each array; a damaged set, or one of a corpus
// that has changed, is rebuilt with a warning. Otherwise builds them and writes the newer version's
// files (the older's where only those are there), each atomically, the description last. Files that
// Megatron wrote have no checksums: the first run builds the same and adds them. The result never
// depends on the state of the cache: one that cannot be written is a warning. Of several processes
// that want the same index one builds it, the others wait (index_file.h).
[[nodiscard]] GptIndex load_or_build_gpt_index(const Corpus& corpus,
                                               const GptIndexRequest& request);

}  // namespace pentatron::datasets

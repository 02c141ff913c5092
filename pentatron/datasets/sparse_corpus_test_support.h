// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "pentatron/datasets/gpt_dataset.h"

// Corpora past 32 bits. Files are sparse: what is not written is zero and takes no room. Only tests
// include it.
namespace pentatron::datasets::testing {

// <prefix>.idx and .bin of `sequences` documents of `length` one-byte tokens, all zero.
inline void write_sparse_corpus(const std::string& prefix, std::int64_t sequences,
                                std::int32_t length) {
  std::ofstream index(prefix + ".idx", std::ios::binary);
  const auto put = [&index](auto value) {
    index.write(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  index.write("MMIDIDX\0\0", 9);
  put(std::uint64_t{1});
  put(std::uint8_t{1});  // uint8
  put(static_cast<std::uint64_t>(sequences));
  put(static_cast<std::uint64_t>(sequences + 1));
  for (std::int64_t i = 0; i < sequences; ++i) put(length);
  for (std::int64_t i = 0; i < sequences; ++i) put(i * length);
  for (std::int64_t i = 0; i <= sequences; ++i) put(i);
  std::ofstream(prefix + ".bin").close();
  std::filesystem::resize_file(prefix + ".bin", static_cast<std::uintmax_t>(sequences * length));
}

// All of it for training, with its index caches beside it.
inline GptDatasetOptions sparse_corpus_options(const std::string& prefix,
                                               std::int64_t sequence_length) {
  GptDatasetOptions options;
  options.data_path = prefix;
  options.split = "1";
  options.sequence_length = sequence_length;
  options.vocab_size = 256;
  options.eod = 255;
  options.data_cache_path = prefix + "_cache";
  return options;
}

}  // namespace pentatron::datasets::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/indexed_dataset_writer.h"

// Small corpora for this module's tests.
namespace pentatron::datasets::testing {

// What a view holds.
template <typename T>
std::vector<T> copied(std::span<const T> values) {
  return {values.begin(), values.end()};
}

using Documents = std::vector<std::vector<std::int32_t>>;

// What a folder holds, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string md5_of_file(const std::filesystem::path& path) {
  return md5_hex(read_text_file(path));
}

// One sequence a document.
inline void write_corpus(const std::string& prefix, const Documents& documents,
                         TokenDtype dtype = TokenDtype::kUint16) {
  IndexedDatasetWriter writer(prefix, dtype);
  for (const auto& document : documents) {
    writer.add_sequence(document);
    writer.end_document();
  }
  writer.finish();
}

// `count` documents of first_length, first_length + 1, ... tokens 0, 1, 2, ...
inline Documents counting_documents(int count, int first_length) {
  Documents documents;
  for (int i = 0; i < count; ++i) {
    documents.emplace_back(static_cast<std::size_t>(first_length + i));
    std::iota(documents.back().begin(), documents.back().end(), 0);
  }
  return documents;
}

// Documents of the given lengths in which every token is new.
inline Documents distinct_documents(const std::vector<int>& lengths) {
  Documents documents;
  std::int32_t token = 0;
  for (const int length : lengths) {
    documents.emplace_back();
    for (int i = 0; i < length; ++i) documents.back().push_back(token++);
  }
  return documents;
}

inline std::vector<std::int64_t> read_sequence(const IndexedDataset& dataset, std::int64_t i) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(dataset.sequence_length(i)));
  dataset.read(i, 0, tokens);
  return tokens;
}

// The working folder, for the length of a scope: cache names hold the prefix as it was given.
class WorkingFolder final {
 public:
  explicit WorkingFolder(const std::filesystem::path& folder)
      : previous_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~WorkingFolder() { std::filesystem::current_path(previous_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  std::filesystem::path previous_;
};

}  // namespace pentatron::datasets::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Which of a library's algorithms were the fastest for which products, kept between runs.
namespace pentatron::tensor {

// What a choice depends on: sizes, dtypes, forms.
using ProductKey = std::vector<std::int64_t>;
// An algorithm as the library describes it to itself (cublasLtMatmulAlgo_t).
using AlgorithmWords = std::array<std::uint64_t, 8>;

// A text file of one GPU model and library version in a user's cache folder. What is in it is a
// hint: one that is damaged, too large or of another version counts as empty, and one that cannot
// be written stays as it is. Several processes may add to one file; an entry that is lost in a race
// is measured again. Not thread-safe.
class AlgorithmFile final {
 public:
  // `folder` empty: nothing is kept. `gpu`: its name, of any characters.
  AlgorithmFile(const std::filesystem::path& folder, std::string_view gpu, std::int64_t library);

  // Null where the key is unknown.
  [[nodiscard]] const AlgorithmWords* find(const ProductKey& key) const;
  // Reads what others have added meanwhile and replaces the file. Beyond kMaxEntries: nothing.
  void put(const ProductKey& key, const AlgorithmWords& words);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  static constexpr std::size_t kMaxEntries = 4096;

 private:
  using Entries = std::map<ProductKey, AlgorithmWords>;
  [[nodiscard]] Entries read() const;

  std::filesystem::path path_;  // empty: none
  std::string first_line_;
  Entries entries_;
};

// $XDG_CACHE_HOME/pentatron, else $HOME/.cache/pentatron; empty where neither is an absolute path.
[[nodiscard]] std::filesystem::path user_cache_folder();

}  // namespace pentatron::tensor

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/algorithm_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"

namespace pentatron::tensor {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;
constexpr std::size_t kMaxNumbers = 32;  // of a key
constexpr std::size_t kMaxName = 64;     // characters of a GPU's name
constexpr int kHex = 16;
constexpr std::size_t kDigits = 16;  // of a word

// Letters and digits; what else there is becomes a dash.
std::string plain_name(std::string_view name) {
  std::string plain(name.substr(0, kMaxName));
  for (char& c : plain) {
    const bool keeps = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!keeps) c = '-';
  }
  return plain;
}

// The part before `separator`, which is taken off `text` with it.
std::string_view next_part(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

template <typename T>
bool read_number(std::string_view text, T& value, int base) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  return !text.empty() && error == std::errc() && at == end;
}

// "key numbers<tab>eight words".
std::optional<std::pair<ProductKey, AlgorithmWords>> read_entry(std::string_view line) {
  std::string_view numbers = next_part(line, '\t');
  ProductKey key;
  while (!numbers.empty()) {
    if (key.size() == kMaxNumbers) return std::nullopt;
    if (!read_number(next_part(numbers, ' '), key.emplace_back(), 10)) return std::nullopt;
  }
  AlgorithmWords words;
  for (std::uint64_t& word : words) {
    const std::string_view digits = next_part(line, ' ');
    if (digits.size() != kDigits || !read_number(digits, word, kHex)) return std::nullopt;
  }
  if (key.empty() || !line.empty()) return std::nullopt;
  return std::pair(std::move(key), words);
}

std::string text_of(const ProductKey& key, const AlgorithmWords& words) {
  return fmt::format("{}\t{:016x}\n", fmt::join(key, " "), fmt::join(words, " "));
}

}  // namespace

AlgorithmFile::AlgorithmFile(const std::filesystem::path& folder, std::string_view gpu,
                             std::int64_t library) {
  if (folder.empty()) return;
  path_ = folder / fmt::format("cublaslt-{}-{}.tsv", library, plain_name(gpu));
  first_line_ = fmt::format("pentatron products 1 {} {}", library, plain_name(gpu));
  entries_ = read();
}

AlgorithmFile::Entries AlgorithmFile::read() const {
  std::error_code error;
  if (path_.empty() || !std::filesystem::is_regular_file(path_, error)) return {};
  try {
    const std::string text = read_text_file(path_, kMaxBytes);
    std::string_view rest = text;
    Entries entries;
    bool sound = text.ends_with('\n') && next_part(rest, '\n') == first_line_;
    while (sound && !rest.empty()) {
      const auto entry = read_entry(next_part(rest, '\n'));
      sound = entry.has_value() && entries.size() < kMaxEntries;
      if (sound) entries.insert(*entry);
    }
    if (sound) return entries;
    log::warn("{} is damaged: products are measured again", path_.string());
  } catch (const Error& problem) {
    log::warn("{}: products are measured again", problem.what());
  }
  return {};
}

const AlgorithmWords* AlgorithmFile::find(const ProductKey& key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

void AlgorithmFile::put(const ProductKey& key, const AlgorithmWords& words) {
  entries_.insert_or_assign(key, words);
  if (path_.empty()) return;
  entries_.merge(read());
  if (entries_.size() > kMaxEntries || key.size() > kMaxNumbers) return;
  std::string text = first_line_ + "\n";
  for (const auto& [known, algorithm] : entries_) text += text_of(known, algorithm);
  try {
    create_folders(path_.parent_path());
    write_file_atomically(path_, text);
  } catch (const Error& problem) {
    log::warn("{}: choices of algorithms are not kept", problem.what());
    path_.clear();
  }
}

std::filesystem::path user_cache_folder() {
  const std::filesystem::path cache = env_string("XDG_CACHE_HOME").value_or("");
  if (cache.is_absolute()) return cache / "pentatron";
  const std::filesystem::path home = env_string("HOME").value_or("");
  return home.is_absolute() ? home / ".cache" / "pentatron" : std::filesystem::path();
}

}  // namespace pentatron::tensor

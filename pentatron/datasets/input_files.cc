// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/input_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/datasets/byte_source.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kTextEndings = {".jsonl", ".ndjson", ".json", ".txt"};

std::string_view without_packing(std::string_view path) {
  for (const std::string_view ending : compressed_endings()) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

bool is_text_file(std::string_view path) {
  const std::string_view bare = without_packing(path);
  return std::any_of(kTextEndings.begin(), kTextEndings.end(),
                     [&](std::string_view ending) { return bare.ends_with(ending); });
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code code;
  fs::recursive_directory_iterator it(folder, code);
  for (const fs::recursive_directory_iterator end; !code && it != end; it.increment(code)) {
    if (it->path().filename().native().starts_with('.')) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file() && is_text_file(it->path().native())) files.push_back(it->path());
  }
  PENTATRON_CHECK(!code, kIo, "cannot list --input {}: {}", folder, code.message());
  PENTATRON_CHECK(!files.empty(), kConfig,
                  "--input {}: the folder holds no .jsonl, .ndjson, .json or .txt file (packed as "
                  ".gz, .zst, .bz2 or .xz or not)",
                  folder);
  return files;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) {
    if (!fs::is_directory(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  PENTATRON_CHECK(code == 0 || code == GLOB_NOMATCH, kIo, "cannot search for --input {}", pattern);
  PENTATRON_CHECK(!files.empty(), kConfig, "--input {}: no file has such a name", pattern);
  return files;
}

std::vector<std::string> expand(const std::string& word) {
  if (word == "-") return {word};
  std::vector<std::string> files;
  if (fs::is_directory(word)) {
    files = files_below(word);
  } else if (!fs::exists(word) && word.find_first_of("*?[") != std::string::npos) {
    files = matches(word);
  } else {
    return {word};
  }
  std::sort(files.begin(), files.end());
  return files;
}

InputFormat format_of(const std::string& path, std::string_view txt_documents) {
  if (!without_packing(path).ends_with(".txt")) return InputFormat::kJsonLines;
  if (txt_documents == "line") return InputFormat::kTextLines;
  if (txt_documents == "file") return InputFormat::kTextFile;
  PENTATRON_THROW(kConfig,
                  "{} is plain text: say with --txt-documents line or --txt-documents file what a "
                  "document is, or name a file of JSON lines",
                  path);
}

InputFile describe(const std::string& path, std::string_view txt_documents) {
  InputFile file{.path = path, .format = format_of(path, txt_documents), .bytes = {}};
  if (path == "-") return file;
  struct stat info {};
  PENTATRON_CHECK(::stat(path.c_str(), &info) == 0, kIo, "cannot open {}: {}", path,
                  std::generic_category().message(errno));
  if (!S_ISREG(info.st_mode)) return file;
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  file.bytes = static_cast<std::uint64_t>(info.st_size);
  file.modified_ns = info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec;
  return file;
}

}  // namespace

std::vector<InputFile> list_inputs(std::span<const std::string> words,
                                   std::string_view txt_documents) {
  PENTATRON_CHECK(!words.empty(), kConfig, "--input is missing: name a JSONL file");
  PENTATRON_CHECK(txt_documents.empty() || txt_documents == "line" || txt_documents == "file",
                  kConfig, "--txt-documents must be line or file, got '{}'", txt_documents);
  std::vector<InputFile> files;
  std::set<std::string> seen;
  for (const std::string& word : words) {
    PENTATRON_CHECK(!word.empty(), kConfig, "--input holds an empty name");
    for (const std::string& path : expand(word)) {
      files.push_back(describe(path, txt_documents));
      std::error_code ignored;
      const fs::path real = fs::weakly_canonical(path, ignored);
      PENTATRON_CHECK(seen.insert(path == "-" || ignored ? path : real.string()).second, kConfig,
                      "--input names {} twice", path);
    }
  }
  const bool any_text = std::any_of(files.begin(), files.end(), [](const InputFile& file) {
    return file.format != InputFormat::kJsonLines;
  });
  PENTATRON_CHECK(any_text || txt_documents.empty(), kConfig,
                  "--txt-documents has no effect: no file of --input is named .txt");
  return files;
}

}  // namespace pentatron::datasets

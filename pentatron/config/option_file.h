// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::config {

// One leaf of an option file, as text.
struct FileValue {
  std::string key;                      // the last key on the way to the leaf
  std::vector<std::string> words = {};  // one for a scalar, several for a sequence
  bool is_null = false;
  bool is_list = false;
  int line = 0;  // from 1; 0: unknown
};

// Reads a YAML file, or a JSON file if its name ends in .json. Mappings nest freely: only the
// leaves' keys count. Bounded: 1 MiB, 16 levels, 10,000 values (in YAML with sections and aliases).
// Errors: kIo when it cannot be read, kConfig or kData (with file and line) when it is no such
// file.
[[nodiscard]] std::vector<FileValue> read_option_file(const std::filesystem::path& path);

// The same for the text of such a file; `label` names it in messages.
[[nodiscard]] std::vector<FileValue> parse_yaml_options(const std::string& text,
                                                        std::string_view label);
[[nodiscard]] std::vector<FileValue> parse_json_options(const std::string& text,
                                                        std::string_view label);

}  // namespace pentatron::config

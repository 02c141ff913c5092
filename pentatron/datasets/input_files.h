// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::datasets {

// What of an input file is a document.
enum class InputFormat {
  kJsonLines,  // one JSON object a line
  kTextLines,  // every line of plain text
  kTextFile,   // the whole file of plain text
};

struct InputFile {
  std::string path;  // "-": standard input
  InputFormat format = InputFormat::kJsonLines;
  std::optional<std::uint64_t> bytes;  // of the file as it lies there; unset for pipes
  std::int64_t modified_ns = 0;

  [[nodiscard]] std::string_view name() const {
    return path == "-" ? std::string_view("standard input") : std::string_view(path);
  }
};

// The files that the words of --input name: files, "-", folders (all .jsonl, .ndjson, .json and
// .txt below them, packed ones too, hidden ones not) and patterns of the shell (* ? [ ]). What a
// folder or a pattern gives is in the order of the bytes of the paths; words keep their order.
// `txt_documents` says what is a document in files named .txt (packed or not): "line", "file"; they
// are refused when it is empty, because nothing else tells.
//
// Errors: kIo for what is not there; kConfig for a pattern or folder that gives nothing, a file
// that stands twice, standard input twice, .txt without txt_documents or the other way round.
[[nodiscard]] std::vector<InputFile> list_inputs(std::span<const std::string> words,
                                                 std::string_view txt_documents);

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "tests/functional/tiny_run.h"

// Byte-level BPE tokenizers and corpora as the program's own tools make them.
namespace pentatron::functional {

// A new folder with vocab.json and merges.txt of so many tokens, trained on the text.
[[nodiscard]] std::filesystem::path trained_bpe(const std::string& text, int tokens);
// The options with the tokenizer of such a folder.
[[nodiscard]] Options with_bpe(const Options& options, const std::filesystem::path& folder);
// Lines of JSON as a corpus of that tokenizer, documents ended by its EOD: the prefix, without
// .bin.
[[nodiscard]] std::string bpe_corpus(const std::string& lines, const std::filesystem::path& folder);

}  // namespace pentatron::functional

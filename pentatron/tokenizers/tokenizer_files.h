// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/tokenizers/tokenizer_factory.h"

namespace pentatron::tokenizers {

// Folder inside a checkpoint that holds the tokenizer it was trained with.
inline constexpr const char* kSavedFolder = "tokenizer";
// Names in it that stand for --vocab-file, --merge-file and --tokenizer-model (a file).
inline constexpr const char* kSavedVocabulary = "vocab_file";
inline constexpr const char* kSavedMerges = "merge_file";
inline constexpr const char* kSavedModel = "tokenizer_model";

// The files that decide a tokenizer, as a checkpoint keeps them: names inside kSavedFolder, which
// never come from the options' paths, and bytes. Files that the options do not name, or that need
// not be there and are not, are left out. kIo for one that cannot be read.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> read_tokenizer_files(
    const TokenizerOptions& options);

// Points the options' files into `checkpoint`, one iteration's folder, as read_tokenizer_files()
// named them. Files that are not there (an older checkpoint): kCheckpoint, naming the option.
void use_saved_files(TokenizerOptions& options, const std::filesystem::path& checkpoint);

}  // namespace pentatron::tokenizers

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer_files.h"

#include <array>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"

namespace pentatron::tokenizers {
namespace fs = std::filesystem;
namespace {

// Beside a tokenizer.json.
constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr std::array kCompanions = {"tokenizer_config.json", "special_tokens_map.json"};
// Beside any model file, and what --chat-template becomes.
constexpr const char* kChatTemplate = "chat_template.jinja";

// Of the folder that a tokenizer.json lies in, other files count, too.
bool has_companions(const TokenizerOptions& options) {
  return options.tokenizer_type == "HuggingFaceTokenizer" ||
         options.tokenizer_type == "SFTTokenizer";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_tokenizer_files(
    const TokenizerOptions& options) {
  std::vector<std::pair<std::string, std::string>> files;
  const auto add = [&](const char* name, const fs::path& path) {
    files.emplace_back(name, read_text_file(path, BpeVocabulary::kMaxFileBytes));
  };
  if (!options.vocab_file.empty()) add(kSavedVocabulary, options.vocab_file);
  if (!options.merge_file.empty()) add(kSavedMerges, options.merge_file);
  if (options.tokenizer_model.empty()) return files;
  const fs::path model = options.tokenizer_model;
  const bool folder = fs::is_directory(model);
  const auto add_companion = [&](const char* name) {
    const fs::path path = (folder ? model : model.parent_path()) / name;
    if (fs::exists(path)) add(name, path);
  };
  if (has_companions(options)) {
    add(kTokenizerJson, folder ? model / kTokenizerJson : model);
    for (const char* const name : kCompanions) add_companion(name);
  } else {
    add(kSavedModel, model);
  }
  if (const std::optional<std::string> own = given_chat_template(options)) {
    files.emplace_back(kChatTemplate, *own);
  } else {
    add_companion(kChatTemplate);
  }
  return files;
}

void use_saved_files(TokenizerOptions& options, const fs::path& checkpoint) {
  const fs::path folder = checkpoint / kSavedFolder;
  const auto point = [&](std::string& path, const char* name, const char* option) {
    if (path.empty()) return;
    path = (folder / name).string();
    PENTATRON_CHECK(fs::is_regular_file(path), kCheckpoint,
                    "{} holds no tokenizer: name its file with {}", checkpoint.string(), option);
  };
  point(options.vocab_file, kSavedVocabulary, "--vocab-file");
  point(options.merge_file, kSavedMerges, "--merge-file");
  point(options.tokenizer_model, has_companions(options) ? kTokenizerJson : kSavedModel,
        "--tokenizer-model");
  // What they gave stands beside the model's file.
  if (!options.tokenizer_model.empty()) {
    options.metadata.clear();
    options.chat_template.clear();
  }
}

}  // namespace pentatron::tokenizers

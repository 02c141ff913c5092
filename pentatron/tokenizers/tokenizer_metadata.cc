// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer_metadata.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxMetadataBytes = 64ULL << 20;
constexpr std::uint64_t kMaxTemplateBytes = 4ULL << 20;
constexpr std::string_view kClassPath = "megatron.core.tokenizers.";
constexpr std::array<std::string_view, 6> kKeys = {"library",    "class_name",    "class_path",
                                                   "model_type", "chat_template", "metadata_path"};

// Megatron's name of the library behind a tokenizer type.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kLibraries = {
    {{"GPT2BPETokenizer", "megatron"},
     {"BertWordPieceLowerCase", "megatron"},
     {"BertWordPieceCase", "megatron"},
     {"SentencePieceTokenizer", "sentencepiece"},
     {"GPTSentencePieceTokenizer", "sentencepiece"},
     {"Llama2Tokenizer", "sentencepiece"},
     {"HuggingFaceTokenizer", "huggingface"},
     {"TikTokenizer", "tiktoken"},
     {"SFTTokenizer", "sft"}}};

std::string_view library_of(std::string_view type) {
  const auto found =
      std::ranges::find(kLibraries, type, [](const auto& pair) { return pair.first; });
  return found == kLibraries.end() ? std::string_view() : found->second;
}

// A member that is a text; none where it is missing or null.
std::optional<std::string> text_of(const nlohmann::json& object, std::string_view key,
                                   const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  PENTATRON_CHECK(found->is_string(), kData, "{}: {} must be a text or null", name, key);
  return found->get<std::string>();
}

}  // namespace

TokenizerMetadata read_tokenizer_metadata(const fs::path& file, std::string_view tokenizer_type) {
  const std::string name = file.string();
  const nlohmann::json root = parse_json(read_text_file(file, kMaxMetadataBytes), name);
  PENTATRON_CHECK(root.is_object(), kData, "{}: expected an object", name);
  for (const auto& [key, value] : root.items()) {
    PENTATRON_CHECK(std::ranges::find(kKeys, key) != kKeys.end(), kUnsupported,
                    "--tokenizer-metadata {}: unknown key {}; there are library, class_name, "
                    "class_path and chat_template",
                    name, quoted_for_message(key));
  }
  const std::string_view expected = library_of(tokenizer_type);
  const std::string library = text_of(root, "library", name).value_or("");
  PENTATRON_CHECK(
      library == expected, kConfig,
      "--tokenizer-metadata {}: library {} does not belong to --tokenizer-type {}, whose "
      "library is {}: name the type that goes with the file",
      name, quoted_for_message(library), tokenizer_type, quoted_for_message(expected));
  const std::string path = text_of(root, "class_path", name).value_or("");
  const std::string class_name = text_of(root, "class_name", name).value_or("");
  PENTATRON_CHECK(
      class_name.empty() || path.starts_with(kClassPath), kUnsupported,
      "--tokenizer-metadata {}: the class {} of {} is not Megatron's, and no code is run "
      "from data: leave out class_name and class_path",
      name, quoted_for_message(class_name), quoted_for_message(path));
  return {.chat_template = text_of(root, "chat_template", name)};
}

std::string chat_template_text(const std::string& value) {
  std::error_code code;
  if (fs::is_regular_file(value, code)) return read_text_file(value, kMaxTemplateBytes);
  const bool is_template =
      value.find("{{") != std::string::npos || value.find("{%") != std::string::npos;
  PENTATRON_CHECK(is_template, kConfig,
                  "--chat-template {}: neither a file nor a template, which has {{{{ or {{%",
                  quoted_for_message(value.substr(0, 200)));
  return value;
}

}  // namespace pentatron::tokenizers

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace pentatron::tokenizers {

// What a tokenizer's metadata says beside its files.
struct TokenizerMetadata {
  std::optional<std::string> chat_template;
};

// Megatron's tokenizer_metadata.json (--tokenizer-metadata): an object of "library", which must be
// that of `tokenizer_type`, "class_name" and "class_path", which must be Megatron's own, since no
// code is run from data, and "chat_template" (a text, or null). kIo, kData for a damaged file,
// kConfig for another library, kUnsupported for a class or a key that is not Megatron's.
[[nodiscard]] TokenizerMetadata read_tokenizer_metadata(const std::filesystem::path& file,
                                                        std::string_view tokenizer_type);

// The text of --chat-template: that of the file of this name, or the value itself where it is a
// template. kConfig for what is neither, kIo for a file that cannot be read.
[[nodiscard]] std::string chat_template_text(const std::string& value);

}  // namespace pentatron::tokenizers

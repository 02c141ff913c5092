// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// GPT-2's byte alphabet: every byte has a visible character, so that vocab.json and merges.txt are
// plain text. The printable Latin-1 bytes (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) stand for themselves;
// the other 68, in ascending order, are U+0100, U+0101, ... (space is U+0120, newline U+010A).
namespace pentatron::tokenizers {

[[nodiscard]] char32_t byte_to_code_point(std::uint8_t byte);

// nullopt for a character outside the alphabet.
[[nodiscard]] std::optional<std::uint8_t> code_point_to_byte(char32_t code_point);

// All bytes in ascending order of their visible characters: the order of ids that trainers give.
[[nodiscard]] std::array<std::uint8_t, 256> alphabet_bytes();

// Raw bytes to visible UTF-8 text, and back; nullopt if the text is not valid UTF-8 or holds a
// character outside the alphabet.
[[nodiscard]] std::string bytes_to_visible(std::string_view bytes);
[[nodiscard]] std::optional<std::string> visible_to_bytes(std::string_view visible);

}  // namespace pentatron::tokenizers

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/sentence_piece_model_check.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/charsmap.h"

namespace pentatron::tokenizers {
namespace {

// Fields of the file's protobuf messages.
constexpr std::uint64_t kPiece = 1;         // of the model
constexpr std::uint64_t kPieceText = 1;     // of a piece
constexpr std::uint64_t kNormalizer = 3;    // of the model
constexpr std::uint64_t kDenormalizer = 5;  // of the model
constexpr std::uint64_t kCharsmap = 2;      // of a normaliser

// Reads a protobuf message field by field.
class FieldReader final {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  struct Field {
    std::uint64_t number = 0;
    std::string_view bytes;  // of a text or message, else empty
  };
  // None at the end, and where the message is damaged.
  std::optional<Field> next() {
    const std::optional<std::uint64_t> tag = varint();
    if (!tag) return std::nullopt;
    Field field{.number = *tag >> 3, .bytes = {}};
    std::uint64_t size = 0;
    switch (*tag & 7U) {
      case 0:
        return varint() ? std::optional(field) : std::nullopt;
      case 1:
        size = 8;
        break;
      case 2: {
        const std::optional<std::uint64_t> written = varint();
        if (!written || *written > rest_.size()) return std::nullopt;
        field.bytes = rest_.substr(0, *written);
        size = *written;
        break;
      }
      case 5:
        size = 4;
        break;
      default:
        damaged_ = true;  // groups, which these messages do not have
        return std::nullopt;
    }
    if (size > rest_.size()) return std::nullopt;
    rest_.remove_prefix(size);
    return field;
  }
  // Something that a model never holds, and that another reader may pass over.
  [[nodiscard]] bool damaged() const { return damaged_; }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view rest_;
  bool damaged_ = false;
};

void check_normalizer(std::string_view message, std::string_view name) {
  FieldReader fields(message);
  while (const auto field = fields.next()) {
    if (field->number == kCharsmap && !field->bytes.empty()) (void)Charsmap(field->bytes, name);
  }
  PENTATRON_CHECK(!fields.damaged(), kData, "{}: not a SentencePiece model: a damaged normaliser",
                  name);
}

}  // namespace

void check_sentence_piece_model(std::string_view bytes, std::string_view name) {
  FieldReader fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == kNormalizer || field->number == kDenormalizer) {
      check_normalizer(field->bytes, name);
    }
  }
  PENTATRON_CHECK(!fields.damaged(), kData, "{}: not a SentencePiece model: a damaged file", name);
}

std::size_t reach_of_sentence_piece_model(std::string_view bytes) {
  std::size_t reach = Charsmap::kMaxKeyBytes;
  FieldReader fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number != kPiece) continue;
    FieldReader piece(field->bytes);
    while (const auto part = piece.next()) {
      if (part->number == kPieceText) reach = std::max(reach, part->bytes.size());
    }
  }
  return reach;
}

}  // namespace pentatron::tokenizers

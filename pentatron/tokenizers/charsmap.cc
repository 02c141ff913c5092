// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/charsmap.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::size_t kUnitBytes = 4;
constexpr std::size_t kBlockBytes = 256 * kUnitBytes;  // a trie is whole blocks of 256 units
constexpr std::uint32_t kValueBit = 1U << 31;
constexpr std::size_t kMaxUnits = std::size_t{1} << 20;  // the published rules have 60 thousand

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = kUnitBytes; i-- > 0;) {
    value = (value << 8) | static_cast<std::uint8_t>(bytes[at + i]);
  }
  return value;
}

bool ends_key(std::uint32_t unit) { return (unit & (1U << 8)) != 0; }

// To be combined with the unit's own place by exclusive or.
std::size_t children_of(std::uint32_t unit) {
  const std::size_t offset = (unit & ~kValueBit) >> 10;
  return (unit & (1U << 9)) != 0 ? offset << 8 : offset;
}

// The byte that leads to a unit; no byte for a value.
std::uint32_t label_of(std::uint32_t unit) { return unit & (kValueBit | 0xFFU); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, std::string_view name) {
  PENTATRON_CHECK(bytes.size() >= kUnitBytes, kData,
                  "{}: the precompiled rules have {} bytes; their size alone takes {}", name,
                  bytes.size(), kUnitBytes);
  const std::size_t trie_bytes = little_endian(bytes, 0);
  bytes.remove_prefix(kUnitBytes);
  PENTATRON_CHECK(trie_bytes > 0 && trie_bytes % kBlockBytes == 0 && trie_bytes <= bytes.size() &&
                      trie_bytes / kUnitBytes <= kMaxUnits,
                  kData,
                  "{}: the precompiled rules have a trie of {} bytes; expected a multiple of {} up "
                  "to the {} that follow",
                  name, trie_bytes, kBlockBytes, bytes.size());
  read_trie(bytes.substr(0, trie_bytes));
  texts_ = bytes.substr(trie_bytes);
  PENTATRON_CHECK(replace_invalid_utf8(texts_) == texts_, kData,
                  "{}: the texts of the precompiled rules are not valid UTF-8", name);
  PENTATRON_CHECK(texts_.ends_with('\0'), kData,
                  "{}: the last text of the precompiled rules has no end", name);
  check_units(name);
  check_keys(name);
}

void Charsmap::read_trie(std::string_view bytes) {
  units_.reserve(bytes.size() / kUnitBytes);
  for (std::size_t at = 0; at < bytes.size(); at += kUnitBytes) {
    units_.push_back(little_endian(bytes, at));
  }
}

// Children stand inside the array (whatever byte leads to them: it is whole blocks), and every
// value is the place of a text.
void Charsmap::check_units(std::string_view name) const {
  for (std::size_t place = 0; place < units_.size(); ++place) {
    const std::uint32_t unit = units_[place];
    if ((unit & kValueBit) != 0 && place > 0) continue;  // the first one is the root
    const std::size_t children = place ^ children_of(unit);
    PENTATRON_CHECK(children < units_.size(), kData,
                    "{}: unit {} of the precompiled rules' trie leads outside of its {} units",
                    name, place, units_.size());
    if (!ends_key(unit)) continue;
    const std::size_t value = units_[children] & ~kValueBit;
    PENTATRON_CHECK(
        value < texts_.size() && (static_cast<std::uint8_t>(texts_[value]) & 0xC0U) != 0x80U, kData,
        "{}: unit {} of the precompiled rules' trie stands for no text", name, place);
  }
}

// Follows all keys at once, a byte at a time. Units may share children; a damaged trie may go in
// circles.
void Charsmap::check_keys(std::string_view name) const {
  constexpr std::uint32_t kNone = UINT32_MAX;
  // The units of a node are one list: a unit's byte tells which node it belongs to.
  std::vector<std::uint32_t> first(units_.size(), kNone);
  std::vector<std::uint32_t> next(units_.size(), kNone);
  for (std::uint32_t place = 1; place < units_.size(); ++place) {
    const std::uint32_t byte = label_of(units_[place]);
    if (byte == 0 || byte > 0xFF) continue;
    next[place] = std::exchange(first[place ^ byte], place);
  }
  struct Node {
    std::uint32_t children;
    std::uint32_t keys;  // that end on the way, at most
  };
  std::vector<Node> nodes{{static_cast<std::uint32_t>(children_of(units_.front())), 0}};
  std::vector<std::uint32_t> seen(units_.size(), kNone);  // place in `found`
  for (std::size_t depth = 0; !nodes.empty(); ++depth) {
    PENTATRON_CHECK(depth <= kMaxKeyBytes, kData,
                    "{}: the precompiled rules have a key of more than {} bytes", name,
                    kMaxKeyBytes);
    std::vector<Node> found;
    for (const Node& node : nodes) {
      for (std::uint32_t place = first[node.children]; place != kNone; place = next[place]) {
        const std::uint32_t unit = units_[place];
        const auto children = static_cast<std::uint32_t>(place ^ children_of(unit));
        const std::uint32_t keys = node.keys + (ends_key(unit) ? 1 : 0);
        PENTATRON_CHECK(keys <= kMaxKeysOnPath, kData,
                        "{}: more than {} keys of the precompiled rules begin each other", name,
                        kMaxKeysOnPath);
        if (seen[children] == kNone) {
          seen[children] = static_cast<std::uint32_t>(found.size());
          found.push_back({children, keys});
        } else {
          Node& other = found[seen[children]];
          other.keys = std::max(other.keys, keys);
        }
      }
    }
    for (const Node& node : found) seen[node.children] = kNone;
    nodes = std::move(found);
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  std::size_t place = children_of(units_.front());
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    place ^= byte;
    if (byte == 0 || place >= units_.size() || label_of(units_[place]) != byte) break;
    const std::uint32_t unit = units_[place];
    place ^= children_of(unit);
    if (!ends_key(unit)) continue;
    const std::string_view rest = std::string_view(texts_).substr(units_[place] & ~kValueBit);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

}  // namespace pentatron::tokenizers

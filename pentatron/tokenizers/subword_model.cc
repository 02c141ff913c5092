// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/subword_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace pentatron::tokenizers {

std::vector<std::int32_t> SubwordModel::byte_tokens() const {
  std::vector<std::int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    ids.push_back(tokens_.find(fmt::format("<0x{:02X}>", byte)));
  }
  return ids;
}

bool SubwordModel::append_bytes(std::string_view text, const std::vector<std::int32_t>& byte_ids,
                                std::vector<std::int32_t>& ids) {
  const auto id_of = [&](char c) { return byte_ids[static_cast<std::uint8_t>(c)]; };
  if (!std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) >= 0; })) return false;
  for (const char c : text) ids.push_back(id_of(c));
  return true;
}

void SubwordModel::hash_tokens(Sha256& hash) const {
  for (const std::string& token : tokens_.tokens()) {
    hash.update(std::to_string(token.size()) + ":");
    hash.update(token);
  }
}

}  // namespace pentatron::tokenizers

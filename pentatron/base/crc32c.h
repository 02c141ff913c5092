// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace pentatron {

// CRC-32C (Castagnoli: reflected polynomial 0x82F63B78, all ones at start and end), as iSCSI
// (RFC 3720) and record files have it. Of "123456789": 0xE3069283.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace pentatron

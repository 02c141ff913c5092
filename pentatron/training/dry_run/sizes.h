// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

namespace pentatron::training::dry_run {

// Of the sizes of a tensor, none below 0, perhaps with the bytes of an element. More than 2^50:
// kConfig.
[[nodiscard]] std::int64_t product(std::initializer_list<std::int64_t> sizes);

}  // namespace pentatron::training::dry_run

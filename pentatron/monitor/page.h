// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The files of page/, put into the program when it is built (cmake/embed.cmake).
namespace pentatron::monitor {

[[nodiscard]] std::string_view page_html();
[[nodiscard]] std::string_view page_css();
[[nodiscard]] std::string_view page_js();

}  // namespace pentatron::monitor

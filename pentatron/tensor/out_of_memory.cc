// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "pentatron/base/terminal.h"
#include "pentatron/tensor/memory.h"

namespace pentatron::tensor {
namespace {

// "tried to allocate 1048576 bytes" of the host's allocator, "Tried to allocate 2.00 GiB" of the
// GPU's.
std::string asked_text(std::string_view message) {
  constexpr std::string_view kMark = "ried to allocate ";
  const std::size_t at = message.find(kMark);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = message.substr(at + kMark.size());
  const std::size_t space = rest.find(' ');
  if (space == std::string_view::npos) return "";
  const std::string number(rest.substr(0, space));
  if (rest.substr(space + 1).starts_with("bytes")) {
    return short_bytes(std::strtod(number.c_str(), nullptr));
  }
  const std::string_view unit = rest.substr(space + 1);
  return fmt::format("{} {}", number, unit.substr(0, unit.find_first_of(" .,;\n")));
}

}  // namespace

std::string out_of_memory_text(const std::exception& error) {
  const auto* library = dynamic_cast<const c10::Error*>(&error);
  if (library == nullptr) return "";
  const std::string message = library->what_without_backtrace();
  const bool gpu = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  const bool host = message.find("can't allocate memory") != std::string::npos ||
                    message.find("not enough memory") != std::string::npos;
  if (!gpu && !host) return "";
  std::string text = gpu ? "out of GPU memory" : "out of memory";
  if (const std::string asked = asked_text(message); !asked.empty()) text += ": asked for " + asked;
  try {
    text += fmt::format(", {} of this process's memory in use",
                        short_bytes(static_cast<double>(resident_bytes())));
  } catch (const std::exception&) {
    // No /proc: the rest is worth telling all the same.
  }
  return text +
         ". A smaller --micro-batch-size, --recompute-granularity full, a smaller model or more "
         "ranks need less; pretrain_gpt --dry-run tells what each rank needs";
}

}  // namespace pentatron::tensor

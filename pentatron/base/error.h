// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace pentatron {

// What kind of thing went wrong; the program's exit code follows from it (see exit_code()).
enum class ErrorKind {
  kConfig,       // a value the user set
  kData,         // corpus, tokenizer or other input content
  kIo,           // the operating system refused a file operation
  kCuda,         // device failure
  kComm,         // a collective, a peer or the rendezvous
  kCheckpoint,   // a checkpoint that is damaged or does not match
  kUnsupported,  // known, but not built yet or never
  kInternal,     // a bug of ours
};

[[nodiscard]] std::string_view to_string(ErrorKind kind);

// Exit code of the program for an error kind: config 2, data 3, io 4, cuda 5, comm 6, checkpoint 7,
// unsupported 8, internal 70.
[[nodiscard]] int exit_code(ErrorKind kind);

// The one exception class. The message states what was expected, what came, and which option to
// change.
class Error final : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string_view file = {}, int line = 0);

  [[nodiscard]] ErrorKind kind() const { return kind_; }
  // Source position of the throw; printed for internal errors only.
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  ErrorKind kind_;
  std::string where_;
};

namespace detail {
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, const char* file, int line,
                              fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...), file, line);
}
}  // namespace detail
}  // namespace pentatron

// PENTATRON_THROW(kConfig, "--num-layers {} does not divide by ...", n)
#define PENTATRON_THROW(kind, ...) \
  ::pentatron::detail::throw_error(::pentatron::ErrorKind::kind, __FILE__, __LINE__, __VA_ARGS__)

// A contract that outside data or a caller can break.
#define PENTATRON_CHECK(condition, kind, ...)             \
  do {                                                    \
    if (!(condition)) PENTATRON_THROW(kind, __VA_ARGS__); \
  } while (false)

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/error.h"

namespace pentatron {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig:
      return "config";
    case ErrorKind::kData:
      return "data";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kCuda:
      return "cuda";
    case ErrorKind::kComm:
      return "comm";
    case ErrorKind::kCheckpoint:
      return "checkpoint";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig:
      return 2;
    case ErrorKind::kData:
      return 3;
    case ErrorKind::kIo:
      return 4;
    case ErrorKind::kCuda:
      return 5;
    case ErrorKind::kComm:
      return 6;
    case ErrorKind::kCheckpoint:
      return 7;
    case ErrorKind::kUnsupported:
      return 8;
    case ErrorKind::kInternal:
      return 70;
  }
  return 70;
}

Error::Error(ErrorKind kind, const std::string& message, std::string_view file, int line)
    : std::runtime_error(message), kind_(kind) {
  if (!file.empty()) where_ = fmt::format("{}:{}", file, line);
}

}  // namespace pentatron

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pentatron {

// Bytes that are read in pieces from any place: an object on a server. What it holds does not
// change while it is open: another size or version is an error. Const methods are safe from any
// number of threads.
class RangedSource {
 public:
  RangedSource() = default;
  virtual ~RangedSource() = default;
  RangedSource(const RangedSource&) = delete;
  RangedSource& operator=(const RangedSource&) = delete;

  // For messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  // Fills `out` with the bytes from `offset` on. Past the end: ErrorKind::kInternal. kIo when they
  // cannot be had, kData when the object has changed.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

}  // namespace pentatron

// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/checkpoint/manifest.cc pentatron/checkpoint/coverage.cc pentatron/nn/shard_spec.cc pentatron/tensor/tensor.cc
// sources: pentatron/base/json.cc pentatron/base/format.cc pentatron/base/error.cc pentatron/base/safetensors.cc
// sources: pentatron/base/sha256.cc pentatron/base/hash_kernels.cc
// unlinked: what this target never calls
// libs: fmt crypto
// max_len: 8192
// clang-format on
//
// Any bytes as manifest.json, and any JSON under a checksum that is right, as an attacker signs it:
// refused as a checkpoint error, or every slice lies inside its tensor, every tensor is covered
// once, and the text that is written of it reads back equal.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/base/sha256.h"
#include "pentatron/checkpoint/manifest.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

using pentatron::checkpoint::Manifest;

std::optional<Manifest> parse(const std::string& text) {
  try {
    return pentatron::checkpoint::parse_manifest(text, "manifest.json");
  } catch (const pentatron::Error& error) {
    require(error.kind() == pentatron::ErrorKind::kCheckpoint);
    return std::nullopt;
  }
}

// The elements of the ranges of a tensor's slices are as many as it has.
void check(const Manifest& manifest) {
  std::map<std::string, std::int64_t> covered;
  for (const auto& slice : manifest.slices) {
    require(slice.range_begin >= 0 && slice.range_begin < slice.range_end);
    require(slice.range_end <= slice.box.num_elements());
    require(slice.file.find('/') == std::string::npos && slice.file != "..");
    covered[slice.tensor] += slice.range_end - slice.range_begin;
  }
  for (const auto& tensor : manifest.tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.logical_shape) elements *= size;
    require(elements >= 0 && covered[tensor.name] == elements);
  }
  for (const auto& file : manifest.tokenizer) {
    require(file.name.find('/') == std::string::npos && file.name != "..");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto manifest = parse(text)) check(*manifest);
  std::string inner;
  try {
    inner = pentatron::dump_json(pentatron::parse_json(text, "input"));
  } catch (const pentatron::Error&) {
    return 0;
  }
  const auto manifest =
      parse(R"({"manifest":)" + inner + R"(,"sha256":")" + pentatron::sha256_hex(inner) + "\"}");
  if (!manifest) return 0;
  check(*manifest);
  const std::string written = pentatron::checkpoint::manifest_to_text(*manifest);
  const auto again = parse(written);
  require(again.has_value() && pentatron::checkpoint::manifest_to_text(*again) == written);
  return 0;
}

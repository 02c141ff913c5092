// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace pentatron::inference {

// Logits of documents, fp32, in a file of NumPy (.npy: [rows of all documents, vocabulary], one
// document below the other) or of safetensors (.safetensors: a tensor "logits.I" [rows, vocabulary]
// a document, I from 0). Held in memory until finish(), at most `max_bytes` of them.
class LogitsFile final {
 public:
  // kConfig for a name of another ending.
  LogitsFile(std::filesystem::path path, std::int64_t vocab_size, std::uint64_t max_bytes);

  // kConfig when `rows` more would be over max_bytes: asked before they are computed.
  void check_room(std::int64_t rows) const;
  // [rows, vocab_size], row-major.
  void add(std::vector<float> logits);
  // Writes the file under a temporary name and renames it.
  void finish();

 private:
  std::filesystem::path path_;
  std::int64_t vocab_size_;
  std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::vector<std::vector<float>> documents_;
};

}  // namespace pentatron::inference

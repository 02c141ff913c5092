// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/logits_file.h"

#include <fmt/format.h>

#include <span>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/npy.h"
#include "pentatron/base/safetensors.h"

namespace pentatron::inference {

LogitsFile::LogitsFile(std::filesystem::path path, std::int64_t vocab_size, std::uint64_t max_bytes)
    : path_(std::move(path)), vocab_size_(vocab_size), max_bytes_(max_bytes) {
  PENTATRON_CHECK(path_.extension() == ".npy" || path_.extension() == ".safetensors", kConfig,
                  "--logits {}: the name must end in .npy or .safetensors", path_.string());
}

void LogitsFile::check_room(std::int64_t rows) const {
  const std::uint64_t more = static_cast<std::uint64_t>(rows * vocab_size_) * sizeof(float);
  PENTATRON_CHECK(bytes_ + more <= max_bytes_, kConfig,
                  "--logits {}: the logits of {} documents are more than {} MiB; score fewer, or "
                  "raise --max-logits-mb",
                  path_.string(), documents_.size() + 1, max_bytes_ >> 20);
}

void LogitsFile::add(std::vector<float> logits) {
  bytes_ += logits.size() * sizeof(float);
  documents_.push_back(std::move(logits));
}

void LogitsFile::finish() {
  AtomicFile file(path_);
  const auto rows_of = [&](const std::vector<float>& logits) {
    return static_cast<std::int64_t>(logits.size()) / vocab_size_;
  };
  if (path_.extension() == ".npy") {
    std::int64_t rows = 0;
    for (const auto& logits : documents_) rows += rows_of(logits);
    const std::int64_t shape[] = {rows, vocab_size_};
    file.write(make_npy_header(NpyType::kF4, shape));
    for (const auto& logits : documents_) {
      if (!logits.empty()) file.write(std::as_bytes(std::span(logits)));
    }
  } else {
    std::vector<SafetensorsItem> items;
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      items.push_back({.name = fmt::format("logits.{}", i),
                       .dtype = "F32",
                       .shape = {rows_of(documents_[i]), vocab_size_},
                       .bytes = std::as_bytes(std::span(documents_[i]))});
    }
    write_safetensors(items, {}, [&](std::span<const std::byte> bytes) {
      if (!bytes.empty()) file.write(bytes);
    });
  }
  file.commit();
}

}  // namespace pentatron::inference

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/text_lines.h"

#include <utility>

namespace pentatron::datasets {

TextLines::TextLines(std::vector<std::string> paths, std::size_t max_bytes, Progress progress)
    : paths_(std::move(paths)), max_bytes_(max_bytes), progress_(std::move(progress)) {}

bool TextLines::fill() {
  constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
  for (;;) {
    if (reader_ == nullptr) {
      if (path_ == paths_.size()) return false;
      reader_ = std::make_unique<LineReader>(open_byte_source(paths_[path_++]),
                                             LineReaderOptions{.max_line_bytes = max_bytes_});
    }
    batch_ = reader_->next_batch(kBlockBytes);
    at_ = 0;
    lines_ += std::ssize(batch_.lines);
    bytes_ += batch_.bytes_read;
    if (progress_) progress_(lines_, bytes_);
    if (!batch_.lines.empty()) return true;
    reader_.reset();
  }
}

bool TextLines::next(std::string_view& line) {
  for (;;) {
    if (at_ == batch_.lines.size() && !fill()) return false;
    const LineBatch::Line& one = batch_.lines[at_++];
    if (one.too_long) {
      ++left_out_;
      continue;
    }
    line = batch_.text(one);
    return true;
  }
}

}  // namespace pentatron::datasets

// SPDX-License-Identifier: Apache-2.0
#include "apps/text_printer.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

namespace pentatron::apps {

TextPrinter::TextPrinter(const tokenizers::Tokenizer& tokenizer, std::string prompt,
                         std::vector<std::string> stops, bool prints,
                         std::span<const std::int32_t> context)
    : decoder_(tokenizer),
      text_(std::move(prompt)),
      stops_(std::move(stops)),
      searched_(text_.size()),
      prints_(prints) {
  std::erase(stops_, "");
  for (const std::int32_t token : context) (void)decoder_.add(token);
}

bool TextPrinter::add(std::int32_t token) {
  if (!stopped_) take(decoder_.add(token));
  return !stopped_;
}

void TextPrinter::take(const std::string& text) {
  text_ += text;
  const std::string_view fresh = std::string_view(text_).substr(searched_);
  std::size_t end = std::string_view::npos;
  for (const std::string& stop : stops_) end = std::min(end, fresh.find(stop));
  if (end != std::string_view::npos) {
    stopped_ = true;
    text_.resize(searched_ + end);
    return print(text_.size());
  }
  // The longest end of the text that a stop text begins with.
  std::size_t waiting = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, fresh.size()); n > waiting; --n) {
      if (fresh.ends_with(std::string_view(stop).substr(0, n))) waiting = n;
    }
  }
  print(text_.size() - waiting);
}

void TextPrinter::print(std::size_t bytes) {
  if (prints_ && bytes > 0) {
    // A failure shows at the end of the program, with everything else on standard output.
    (void)std::fwrite(text_.data(), 1, bytes, stdout);
    (void)std::fflush(stdout);
  }
  text_.erase(0, bytes);
  searched_ = searched_ > bytes ? searched_ - bytes : 0;
}

void TextPrinter::finish() {
  if (!stopped_) take(decoder_.finish());
  text_ += '\n';
  print(text_.size());
}

}  // namespace pentatron::apps

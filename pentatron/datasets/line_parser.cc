// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/line_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace pentatron::datasets {
namespace {

// Where invalid UTF-8 stands in plain text; a whole file has lines of its own.
LineProblem utf8_problem(std::string_view text, std::size_t offset, std::int64_t line) {
  const std::string_view before = text.substr(0, offset);
  const auto feeds = std::count(before.begin(), before.end(), '\n');
  const std::size_t feed = before.rfind('\n');
  const std::size_t begin = feed == std::string_view::npos ? 0 : feed + 1;
  return {line + feeds, {static_cast<std::int64_t>(offset - begin) + 1, "not valid UTF-8"}};
}

}  // namespace

ParsedBatch LineParser::parse(const CorpusBatch& batch, InputFormat format) {
  ParsedBatch parsed;
  parsed.lines = static_cast<std::int64_t>(batch.lines.lines.size());
  parsed.bytes_read = batch.lines.bytes_read;
  parsed.file = batch.file;
  parsed.end = batch.end;
  parsed.file_bytes = batch.file_bytes;
  parsed.bytes.reserve(batch.lines.bytes.size());
  parsed.documents.reserve(batch.lines.lines.size());
  for (const LineBatch::Line& line : batch.lines.lines) {
    if (!line.too_long && is_blank(batch.lines.text(line))) {
      ++parsed.blank_lines;
      continue;
    }
    parsed.documents.push_back({line.number, parse_line(batch.lines, line, format, parsed)});
    // The run ends there.
    if (parsed.documents.back().problem && options_.on_bad_line == OnBadLine::kStop) break;
  }
  return parsed;
}

std::optional<LineProblem> LineParser::parse_line(const LineBatch& lines,
                                                  const LineBatch::Line& line, InputFormat format,
                                                  ParsedBatch& parsed) {
  if (line.too_long) {
    return LineProblem{line.number,
                       {1, fmt::format("longer than {} bytes (--max-line-mb allows longer ones)",
                                       options_.max_line_bytes)}};
  }
  std::string_view text = lines.text(line);
  if (format == InputFormat::kJsonLines) {
    if (auto problem = parser_.parse(text, lines.readable(line))) {
      return LineProblem{line.number, std::move(*problem)};
    }
    for (const std::vector<std::string_view>& texts : parser_.texts()) {
      parsed.num_pieces.push_back(texts.size());
      for (const std::string_view piece : texts) add_piece(piece, parsed);
    }
    return std::nullopt;
  }
  if (format == InputFormat::kTextLines && text.ends_with('\r')) text.remove_suffix(1);
  if (const auto offset = invalid_utf8_offset(text)) {
    return utf8_problem(text, *offset, line.number);
  }
  parsed.num_pieces.push_back(1);
  add_piece(text, parsed);
  return std::nullopt;
}

void LineParser::add_piece(std::string_view text, ParsedBatch& parsed) {
  parsed.pieces.push_back({parsed.bytes.size(), text.size()});
  parsed.bytes += text;
}

}  // namespace pentatron::datasets

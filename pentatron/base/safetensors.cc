// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxTensors = std::size_t{1} << 20;
constexpr std::size_t kMaxRank = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<std::pair<std::string_view, std::size_t>, 15> kItemBytes = {{
    {"F64", 8},
    {"F32", 4},
    {"F16", 2},
    {"BF16", 2},
    {"I64", 8},
    {"I32", 4},
    {"I16", 2},
    {"I8", 1},
    {"U8", 1},
    {"BOOL", 1},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"U16", 2},
    {"U32", 4},
    {"U64", 8},
}};

// Bytes of a tensor, or nothing when the product does not fit or a dimension is negative.
std::optional<std::uint64_t> tensor_bytes(const std::vector<std::int64_t>& shape,
                                          std::size_t item_bytes) {
  std::uint64_t product = item_bytes;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, static_cast<std::uint64_t>(size), &product)) {
      return std::nullopt;
    }
  }
  return product;
}

// Receives the header's JSON piece by piece, so that nothing larger than one entry exists before it
// has been checked. Depth 1 is the file, 2 a tensor or the metadata, 3 a tensor's list.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, std::uint64_t data_bytes, std::string_view file_name)
      : header_(header), data_bytes_(data_bytes), file_name_(file_name) {}

  bool start_object(std::size_t /*count*/) override {
    ++depth_;
    if (depth_ == 1) return true;
    if (depth_ != 2) refuse("an object");
    in_metadata_ = name_ == kMetadataKey;
    entry_ = {};
    has_dtype_ = has_shape_ = false;
    offsets_.clear();
    has_offsets_ = false;
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) finish_entry();
    --depth_;
    field_.clear();
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      name_ = text;
      const bool again = text == kMetadataKey ? std::exchange(metadata_seen_, true)
                                              : header_.entries.contains(text);
      PENTATRON_CHECK(!again, kData, "{}: {} appears twice in the header", file_name_,
                      quoted_for_message(text));
      PENTATRON_CHECK(header_.entries.size() < kMaxTensors, kData, "{}: more than {} tensors",
                      file_name_, kMaxTensors);
      return true;
    }
    field_ = text;
    if (in_metadata_) {
      PENTATRON_CHECK(!header_.metadata.contains(text), kData,
                      "{}: metadata key {} appears twice in the header", file_name_,
                      quoted_for_message(text));
      return true;
    }
    bool* const seen = text == "dtype"          ? &has_dtype_
                       : text == "shape"        ? &has_shape_
                       : text == "data_offsets" ? &has_offsets_
                                                : nullptr;
    PENTATRON_CHECK(seen != nullptr, kData, "{}: tensor {} has the unknown field {}", file_name_,
                    quoted_for_message(name_), quoted_for_message(text));
    PENTATRON_CHECK(!std::exchange(*seen, true), kData, "{}: tensor {} has two fields {}",
                    file_name_, quoted_for_message(name_), quoted_for_message(text));
    return true;
  }

  bool start_array(std::size_t /*count*/) override {
    ++depth_;
    if (depth_ != 3 || in_metadata_ || field_ == "dtype") refuse("a list");
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata.emplace(field_, text);
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") refuse("a string");
    entry_.dtype = text;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (depth_ != 3) refuse("a number");
    if (field_ == "data_offsets") {
      PENTATRON_CHECK(offsets_.size() < 2, kData, "{}: tensor {} has more than two data_offsets",
                      file_name_, quoted_for_message(name_));
      offsets_.push_back(value);
      return true;
    }
    PENTATRON_CHECK(std::in_range<std::int64_t>(value), kData,
                    "{}: tensor {} has the size {}, more than 2^63 - 1", file_name_,
                    quoted_for_message(name_), value);
    PENTATRON_CHECK(entry_.shape.size() < kMaxRank, kData, "{}: tensor {} has more than {} sizes",
                    file_name_, quoted_for_message(name_), kMaxRank);
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool number_integer(std::int64_t /*value*/) override { refuse("a negative number"); }
  bool number_float(double /*value*/, const std::string& text) override {
    refuse(fmt::format("the number {}", quoted_for_message(text)));
  }
  bool null() override { refuse("null"); }
  bool boolean(bool /*value*/) override { refuse("a boolean"); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { refuse("binary data"); }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& /*error*/) override {
    PENTATRON_THROW(kData, "{}: the header is no valid JSON in UTF-8 (byte {} of the header)",
                    file_name_, position);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    const std::string_view expected = depth_ >= 2 && in_metadata_
                                          ? "metadata holds strings only"
                                          : "a tensor holds dtype (string), shape and data_offsets "
                                            "(lists of non-negative integers)";
    PENTATRON_THROW(kData, "{}: {} {} under {}, but {}", file_name_, what, "is not allowed",
                    quoted_for_message(name_), expected);
  }

  void finish_entry() {
    const std::string name = quoted_for_message(name_);
    PENTATRON_CHECK(has_dtype_ && has_shape_ && has_offsets_ && offsets_.size() == 2, kData,
                    "{}: tensor {} needs dtype, shape and two data_offsets", file_name_, name);
    const std::optional<std::size_t> item_bytes = safetensors_item_bytes(entry_.dtype);
    PENTATRON_CHECK(item_bytes.has_value(), kData, "{}: tensor {} has the unknown dtype {}",
                    file_name_, name, quoted_for_message(entry_.dtype));
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    PENTATRON_CHECK(entry_.begin <= entry_.end && entry_.end <= data_bytes_, kData,
                    "{}: tensor {} lies at bytes {} to {}, but the file holds {} bytes of data",
                    file_name_, name, entry_.begin, entry_.end, data_bytes_);
    const std::optional<std::uint64_t> expected = tensor_bytes(entry_.shape, *item_bytes);
    PENTATRON_CHECK(expected == entry_.end - entry_.begin, kData,
                    "{}: tensor {} has {} bytes, which is not dtype {} times its shape [{}]",
                    file_name_, name, entry_.end - entry_.begin, entry_.dtype,
                    fmt::join(entry_.shape, ", "));
    header_.entries.emplace(name_, std::move(entry_));
  }

  SafetensorsHeader& header_;
  std::uint64_t data_bytes_;
  std::string_view file_name_;
  int depth_ = 0;
  bool metadata_seen_ = false;
  bool in_metadata_ = false;
  std::string name_;   // key at depth 1
  std::string field_;  // key at depth 2
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

// Every byte of the data belongs to exactly one tensor: no other file can hide inside.
void check_tiling(const SafetensorsHeader& header, std::uint64_t data_bytes,
                  std::string_view file_name) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
  order.reserve(header.entries.size());
  for (const auto& [name, entry] : header.entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::uint64_t cursor = 0;
  for (const auto& [name, entry] : order) {
    PENTATRON_CHECK(entry->begin == cursor, kData,
                    "{}: tensor {} begins at byte {}, expected {} ({})", file_name,
                    quoted_for_message(*name), entry->begin, cursor,
                    entry->begin < cursor ? "tensors overlap" : "there is a hole");
    cursor = entry->end;
  }
  PENTATRON_CHECK(cursor == data_bytes, kData,
                  "{}: the tensors end at byte {} of the data, the file at {}", file_name, cursor,
                  data_bytes);
}

std::string json_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    PENTATRON_THROW(kData, "safetensors: {} is not UTF-8", quoted_for_message(text));
  }
}

}  // namespace

std::optional<std::size_t> safetensors_item_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kItemBytes) {
    if (name == dtype) return bytes;
  }
  return std::nullopt;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file_bytes,
                                    std::string_view file_name) {
  PENTATRON_CHECK(file_bytes.size() >= kLengthBytes, kData,
                  "{}: {} bytes are too few for a safetensors file", file_name, file_bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, file_bytes.data(), sizeof(length));
  const std::uint64_t rest = file_bytes.size() - kLengthBytes;
  PENTATRON_CHECK(length <= kMaxHeaderBytes && length <= rest, kData,
                  "{}: header length {} is more than {} or than the {} bytes that follow",
                  file_name, length, kMaxHeaderBytes, rest);
  const auto* const text = reinterpret_cast<const char*>(file_bytes.data()) + kLengthBytes;
  return parse_safetensors_header({text, length}, rest - length, file_name);
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           std::string_view file_name) {
  PENTATRON_CHECK(text.starts_with('{'), kData, "{}: the header does not begin with '{{'",
                  file_name);
  // The parser takes a zero byte for the end of the text: anything could hide behind it.
  PENTATRON_CHECK(text.find('\0') == std::string_view::npos, kData,
                  "{}: the header is no valid JSON (it holds a zero byte)", file_name);
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + text.size();
  HeaderReader reader(header, data_bytes, file_name);
  const bool done = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  PENTATRON_CHECK(done, kData, "{}: the header is no valid JSON", file_name);
  check_tiling(header, data_bytes, file_name);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : map_(path), header_(parse_safetensors(map_.bytes(), path.string())) {}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const auto found = header_.entries.find(std::string(name));
  PENTATRON_CHECK(found != header_.entries.end(), kData, "{}: no tensor {}", map_.path().string(),
                  quoted_for_message(name));
  const SafetensorsEntry& entry = found->second;
  return map_.bytes().subspan(header_.data_offset + entry.begin, entry.end - entry.begin);
}

std::string_view SafetensorsFile::header_text() const {
  const auto* const begin = reinterpret_cast<const char*>(map_.bytes().data());
  return {begin + kLengthBytes, header_.data_offset - kLengthBytes};
}

bool before_in_safetensors(const SafetensorsShape& a, const SafetensorsShape& b) {
  constexpr std::array<std::string_view, 15> kOrder = {"U64",     "I64",     "F64", "F32", "U32",
                                                       "I32",     "BF16",    "F16", "U16", "I16",
                                                       "F8_E4M3", "F8_E5M2", "I8",  "U8",  "BOOL"};
  const auto place = [&](const std::string& dtype) {
    return std::find(kOrder.begin(), kOrder.end(), dtype) - kOrder.begin();
  };
  return std::pair(place(a.dtype), std::string_view(a.name)) <
         std::pair(place(b.dtype), std::string_view(b.name));
}

std::string make_safetensors_header(std::span<const SafetensorsItem> items,
                                    const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsShape> tensors;
  tensors.reserve(items.size());
  for (const SafetensorsItem& item : items) {
    const std::size_t item_bytes = safetensors_item_bytes(item.dtype).value_or(0);
    PENTATRON_CHECK(item_bytes == 0 || tensor_bytes(item.shape, item_bytes) == item.bytes.size(),
                    kInternal, "safetensors: {} has {} bytes, not dtype {} times its shape",
                    quoted_for_message(item.name), item.bytes.size(), item.dtype);
    tensors.push_back({item.name, item.dtype, item.shape});
  }
  return plan_safetensors_header(tensors, metadata);
}

std::string plan_safetensors_header(std::span<const SafetensorsShape> tensors,
                                    const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&text] {
    if (text.size() > 1) text += ',';
  };
  if (!metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadataKey);
    std::string_view comma;
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}{}:{}", std::exchange(comma, ","), json_text(key), json_text(value));
    }
    text += '}';
  }
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const SafetensorsShape& item : tensors) {
    const std::string name = quoted_for_message(item.name);
    PENTATRON_CHECK(item.name != kMetadataKey && names.insert(item.name).second, kInternal,
                    "safetensors: the name {} is taken", name);
    const std::optional<std::size_t> item_bytes = safetensors_item_bytes(item.dtype);
    PENTATRON_CHECK(item_bytes.has_value(), kInternal, "safetensors: {} has unknown dtype {}", name,
                    item.dtype);
    PENTATRON_CHECK(item.shape.size() <= kMaxRank && names.size() <= kMaxTensors, kInternal,
                    "safetensors: {} is beyond {} sizes or {} tensors", name, kMaxRank,
                    kMaxTensors);
    const std::optional<std::uint64_t> bytes = tensor_bytes(item.shape, *item_bytes);
    PENTATRON_CHECK(bytes.has_value(), kInternal, "safetensors: {} is beyond 2^64 bytes", name);
    separate();
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_text(item.name), item.dtype, fmt::join(item.shape, ","), offset,
                        offset + *bytes);
    offset += *bytes;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  PENTATRON_CHECK(text.size() <= kMaxHeaderBytes, kUnsupported,
                  "safetensors: a header of {} bytes is more than the format's {}", text.size(),
                  kMaxHeaderBytes);
  return text;
}

}  // namespace pentatron

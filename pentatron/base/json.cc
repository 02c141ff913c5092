// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron {
namespace {

using nlohmann::json;

// Tells how far the parser has read, which its callbacks do not.
class ReportingIterator final {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  ReportingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  ReportingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  ReportingIterator operator++(int) {
    ReportingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const ReportingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const ReportingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Builds the value and refuses what a lenient reader would let pass.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  json result;
  const char* reached = nullptr;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t& /*value*/) override { fail("binary data"); }

  bool start_object(std::size_t /*count*/) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*count*/) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(std::string& text) override {
    auto& object = stack_.back()->get_ref<json::object_t&>();
    const auto [at, added] = object.try_emplace(text);
    if (!added) fail(fmt::format("the key {} appears twice", quoted_for_message(text)));
    slot_ = &at->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const json::exception& error) override {
    // The parser looks one byte ahead of its own position, and one beyond the end.
    reached = text_.data() + std::min(position, text_.size());
    // An out_of_range exception: the number was well-formed but is beyond a double.
    constexpr int kNumberRange = 406;
    if (error.id == kNumberRange) fail("number beyond the range of a double");
    if (position > text_.size()) fail("the text ends too early");
    fail(fmt::format("not valid JSON near {}", quoted_for_message(last_token)));
  }

  [[noreturn]] void refuse_at(std::size_t position, std::string_view what) {
    reached = text_.data() + position + 1;
    fail(what);
  }

 private:
  template <typename Value>
  bool add(Value&& value) {
    *next_slot() = std::forward<Value>(value);
    return true;
  }

  json* next_slot() {
    if (stack_.empty()) return &result;
    if (stack_.back()->is_object()) return slot_;
    auto& array = stack_.back()->get_ref<json::array_t&>();
    array.emplace_back();
    return &array.back();
  }

  bool open(json&& container) {
    if (stack_.size() >= kMaxJsonDepth) fail(fmt::format("more than {} levels", kMaxJsonDepth));
    json* const slot = next_slot();
    *slot = std::move(container);
    stack_.push_back(slot);
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  [[noreturn]] void fail(std::string_view what) const {
    const auto consumed = reached == nullptr ? 0 : static_cast<std::size_t>(reached - text_.data());
    const std::string_view before = text_.substr(0, consumed);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column =
        newline == std::string_view::npos ? consumed : consumed - newline - 1;
    PENTATRON_THROW(kData, "{}:{}:{}: {}", name_, line, std::max<std::size_t>(column, 1), what);
  }

  std::string_view text_;
  std::string_view name_;
  // Containers being filled. Pointers stay good: a container does not grow while a child is open,
  // and objects are node-based maps.
  std::vector<json*> stack_;
  json* slot_ = nullptr;
};

}  // namespace

json parse_json(std::string_view text, std::string_view name) {
  Builder builder(text, name);
  // The parser takes a zero byte for the end of the text and would let pass what follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    builder.refuse_at(zero, "a zero byte");
  }
  const ReportingIterator begin(text.data(), &builder.reached);
  const ReportingIterator end(text.data() + text.size(), &builder.reached);
  // The builder throws at the first fault, so a false result has no other cause.
  PENTATRON_CHECK(json::sax_parse(begin, end, &builder), kData, "{}: not valid JSON", name);
  return std::move(builder.result);
}

std::string dump_json(const json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const json::exception& error) {
    PENTATRON_THROW(kData, "cannot write JSON: {}", error.what());
  }
}

}  // namespace pentatron

// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/split_pattern.h"

#include <algorithm>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/tokenizers/pattern_parser.h"

namespace pentatron::tokenizers {
namespace {

using Op = PatternProgram::Op;

constexpr std::size_t kMaxStates = 20'000;
constexpr std::size_t kNumBlocks = (kInvalidByte >> 8) + 1;

// Characters that no set tells apart, and which sets hold each class.
struct Classes {
  std::vector<std::pair<char32_t, std::uint8_t>> starts;  // first code point of a run, its class
  std::vector<std::vector<bool>> in_set;                  // [class][set]
};

Classes classes_of(const PatternProgram& program, const std::string& pattern) {
  std::vector<char32_t> borders{0};
  for (const CodePointSet& set : program.sets) {
    for (const auto& [first, last] : set.ranges()) {
      borders.push_back(first);
      if (last < kInvalidByte) borders.push_back(last + 1);
    }
  }
  borders.push_back(kInvalidByte);
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  Classes classes;
  std::map<std::vector<bool>, std::uint8_t> known;
  for (const char32_t border : borders) {
    std::vector<bool> in_set;
    for (const CodePointSet& set : program.sets) in_set.push_back(set.contains(border));
    const auto [at, fresh] = known.try_emplace(in_set, static_cast<std::uint8_t>(known.size()));
    PENTATRON_CHECK(known.size() < 255, kData, "pattern {}: too many kinds of characters",
                    quoted_for_message(pattern));
    if (fresh) classes.in_set.push_back(in_set);
    classes.starts.emplace_back(border, at->second);
  }
  return classes;
}

// One step of the ordered set of threads: which threads go on after a character of class `next`
// (the end of the text: no class), and whether the pattern matches before it.
class Stepper final {
 public:
  Stepper(const PatternProgram& program, const Classes& classes)
      : program_(program), classes_(classes), seen_(program.instructions.size()) {}

  struct Result {
    std::vector<std::uint32_t> threads;
    bool matches = false;
  };
  Result step(const std::vector<std::uint32_t>& threads, std::size_t next) {
    std::fill(seen_.begin(), seen_.end(), false);
    Result result;
    for (const std::uint32_t thread : threads) {
      if (follow(thread, next, result)) break;
    }
    return result;
  }

 private:
  [[nodiscard]] bool holds(std::uint32_t set, std::size_t next) const {
    return next < classes_.in_set.size() && classes_.in_set[next][set];
  }

  // True at a match: what is less preferred counts no more.
  bool follow(std::uint32_t start, std::size_t next, Result& result) {
    stack_.assign(1, start);
    while (!stack_.empty()) {
      const std::uint32_t at = stack_.back();
      stack_.pop_back();
      if (seen_[at]) continue;
      seen_[at] = true;
      const PatternProgram::Instruction& instruction = program_.instructions[at];
      switch (instruction.op) {
        case Op::kTake:
          if (holds(instruction.a, next)) result.threads.push_back(at + 1);
          break;
        case Op::kSplit:
          stack_.push_back(instruction.b);
          stack_.push_back(instruction.a);
          break;
        case Op::kJump:
          stack_.push_back(instruction.a);
          break;
        case Op::kIfNext:
          if (holds(instruction.a, next)) stack_.push_back(at + 1);
          break;
        case Op::kUnlessNext:
          if (!holds(instruction.a, next)) stack_.push_back(at + 1);
          break;
        case Op::kMatch:
          result.matches = true;
          return true;
      }
    }
    return false;
  }

  const PatternProgram& program_;
  const Classes& classes_;
  std::vector<bool> seen_;
  std::vector<std::uint32_t> stack_;
};

}  // namespace

SplitPattern::SplitPattern(std::string_view pattern) : pattern_(pattern) {
  const PatternProgram program = parse_pattern(pattern);
  const Classes classes = classes_of(program, pattern_);
  num_classes_ = classes.in_set.size() + 1;

  // Characters to classes: equal blocks of 256 are stored once.
  std::map<std::vector<std::uint8_t>, std::uint16_t> blocks;
  std::size_t run = 0;
  for (std::size_t block = 0; block < kNumBlocks; ++block) {
    std::vector<std::uint8_t> content(256);
    for (std::size_t i = 0; i < content.size(); ++i) {
      const auto code_point = static_cast<char32_t>(block * 256 + i);
      while (run + 1 < classes.starts.size() && classes.starts[run + 1].first <= code_point) ++run;
      content[i] = classes.starts[run].second;
    }
    const auto [at, fresh] =
        blocks.try_emplace(content, static_cast<std::uint16_t>(classes_.size() / 256));
    if (fresh) classes_.insert(classes_.end(), content.begin(), content.end());
    blocks_.push_back(at->second);
  }
  for (char32_t c = 0; c < ascii_classes_.size(); ++c) ascii_classes_[c] = class_of(c);

  // All states at once, so that threads share them without a lock. State 0 is the dead one.
  Stepper stepper(program, classes);
  std::map<std::vector<std::uint32_t>, std::uint32_t> numbers{{{}, 0}, {{0}, 1}};
  std::vector<std::vector<std::uint32_t>> states{{}, {0}};
  for (std::size_t state = 0; state < states.size(); ++state) {
    for (std::size_t next = 0; next < num_classes_; ++next) {
      Stepper::Result result = stepper.step(states[state], next);
      const auto [at, fresh] =
          numbers.try_emplace(std::move(result.threads), static_cast<std::uint32_t>(states.size()));
      if (fresh) states.push_back(at->first);
      transitions_.push_back((at->second << 1) | (result.matches ? 1U : 0U));
    }
    PENTATRON_CHECK(states.size() <= kMaxStates, kData, "pattern {}: it is too large",
                    quoted_for_message(pattern_));
  }
}

std::optional<SplitPattern::Match> SplitPattern::find(std::string_view text, std::size_t from,
                                                      std::uint64_t& looks) const {
  for (std::size_t begin = from; begin < text.size();) {
    std::size_t at = begin;
    std::size_t end = begin;
    std::size_t first_size = 1;
    for (std::size_t state = 1;;) {
      std::size_t size = 0;
      std::size_t type = num_classes_ - 1;
      if (at < text.size()) {
        const auto byte = static_cast<std::uint8_t>(text[at]);
        if (byte < 0x80) {
          type = ascii_classes_[byte];
          size = 1;
        } else {
          const DecodedCodePoint c = code_point_at(text, at);
          type = class_of(c.value);
          size = c.size;
        }
      }
      if (at == begin) first_size = size;
      const Transition transition = transitions_[state * num_classes_ + type];
      if ((transition & 1U) != 0) end = at;
      state = transition >> 1;
      if (state == 0 || size == 0) break;
      at += size;
    }
    looks += at - begin + 1;
    PENTATRON_CHECK(looks <= kMaxLooks * (text.size() + 64), kData,
                    "pattern {} looks at the text more than {} times over: it does not fit this "
                    "text",
                    quoted_for_message(pattern_), kMaxLooks);
    if (end > begin) return Match{begin, end};
    begin += first_size;
  }
  return std::nullopt;
}

}  // namespace pentatron::tokenizers

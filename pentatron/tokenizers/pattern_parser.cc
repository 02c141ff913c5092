// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/pattern_parser.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron::tokenizers {
namespace {

using Op = PatternProgram::Op;

constexpr int kMaxDepth = 50;
constexpr std::size_t kMaxInstructions = 20'000;
constexpr std::uint32_t kMaxRepeats = 1'000;
constexpr std::uint32_t kUnbounded = ~0U;

// The expression as a tree; `set` of one character, or of the character that is looked at.
struct Node {
  enum class Kind { kSet, kSequence, kAlternatives, kRepeat, kIfNext, kUnlessNext };
  Kind kind = Kind::kSequence;
  CodePointSet set = {};
  std::vector<Node> children = {};
  std::uint32_t least = 1;
  std::uint32_t most = 1;
  bool lazy = false;
  bool possessive = false;
};

bool can_be_empty(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kSet:
      return false;
    case Node::Kind::kSequence:
      return std::all_of(node.children.begin(), node.children.end(), can_be_empty);
    case Node::Kind::kAlternatives:
      return std::any_of(node.children.begin(), node.children.end(), can_be_empty);
    case Node::Kind::kRepeat:
      return node.least == 0 || can_be_empty(node.children.front());
    case Node::Kind::kIfNext:
    case Node::Kind::kUnlessNext:
      break;
  }
  return true;
}

// Characters that a match can begin with.
CodePointSet first_characters(const Node& node) {
  CodePointSet set;
  if (node.kind == Node::Kind::kSet) return node.set;
  for (const Node& child : node.children) {
    set.add(first_characters(child));
    if (node.kind == Node::Kind::kSequence && !can_be_empty(child)) break;
  }
  return set;
}

bool overlap(const CodePointSet& a, const CodePointSet& b) {
  return std::any_of(a.ranges().begin(), a.ranges().end(), [&](const auto& range) {
    return std::any_of(b.ranges().begin(), b.ranges().end(), [&](const auto& other) {
      return range.first <= other.second && other.first <= range.second;
    });
  });
}

class Parser final {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {
    for (std::size_t at = 0; at < pattern.size();) {
      const DecodedCodePoint c = code_point_at(pattern, at);
      if (c.value == kInvalidByte) refuse("it is not valid UTF-8");
      characters_.push_back(c.value);
      at += c.size;
    }
  }

  Node run() {
    Node root = alternatives(0);
    if (!at_end()) refuse("a closing parenthesis that closes nothing");
    check_possessive(root, {});
    return root;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    PENTATRON_THROW(kData, "pattern {}: {}", quoted_for_message(std::string(pattern_)), what);
  }
  [[nodiscard]] bool at_end() const { return at_ >= characters_.size(); }
  [[nodiscard]] char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < characters_.size() ? characters_[at_ + ahead] : 0;
  }
  char32_t take() {
    if (at_end()) refuse("it ends too early");
    return characters_[at_++];
  }
  bool take_if(char32_t c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }

  Node alternatives(int depth) {
    if (depth > kMaxDepth) refuse("groups are nested too deeply");
    Node node{.kind = Node::Kind::kAlternatives};
    do {
      Node sequence{.kind = Node::Kind::kSequence};
      while (!at_end() && peek() != U'|' && peek() != U')') {
        sequence.children.push_back(quantified(atom(depth)));
      }
      node.children.push_back(std::move(sequence));
    } while (take_if(U'|'));
    return node;
  }

  Node one_of(CodePointSet set) const {
    return {.kind = Node::Kind::kSet,
            .set = ignore_case_ ? set.case_insensitive() : std::move(set)};
  }

  Node atom(int depth) {
    const char32_t c = take();
    switch (c) {
      case U'(':
        return group(depth);
      case U'[':
        return one_of(bracket());
      case U'\\':
        return one_of(escape());
      case U'.':
        return one_of(CodePointSet::of('\n', '\n').negated());
      case U'^':
      case U'$':
        refuse("anchors are not supported");
      case U'?':
      case U'*':
      case U'+':
      case U'{':
        refuse("a quantifier that repeats nothing");
      default:
        return one_of(CodePointSet::of(c, c));
    }
  }

  Node group(int depth) {
    const bool before = ignore_case_;
    std::optional<Node::Kind> look;
    if (take_if(U'?')) {
      if (take_if(U'i')) {
        if (!take_if(U':')) refuse("of groups with flags only (?i: ) is supported");
        ignore_case_ = true;
      } else if (take_if(U'=')) {
        look = Node::Kind::kIfNext;
      } else if (take_if(U'!')) {
        look = Node::Kind::kUnlessNext;
      } else if (!take_if(U':')) {
        refuse("a kind of group that is not supported (look-behind, atomic, named)");
      }
    }
    Node inside = alternatives(depth + 1);
    if (!take_if(U')')) refuse("a group that is not closed");
    ignore_case_ = before;
    if (!look) return inside;
    const Node* one = &inside;
    while (one->kind != Node::Kind::kSet && one->children.size() == 1) one = &one->children.front();
    if (one->kind != Node::Kind::kSet) refuse("lookahead is supported for one character only");
    return {.kind = *look, .set = one->set};
  }

  Node quantified(Node node) {
    std::uint32_t least = 0;
    std::uint32_t most = kUnbounded;
    if (take_if(U'?')) {
      most = 1;
    } else if (take_if(U'+')) {
      least = 1;
    } else if (take_if(U'{')) {
      least = number();
      most = take_if(U',') ? (peek() == U'}' ? kUnbounded : number()) : least;
      if (!take_if(U'}') || most < least) refuse("a count that is not {n}, {n,} or {n,m}");
    } else if (!take_if(U'*')) {
      return node;
    }
    if (node.kind == Node::Kind::kIfNext || node.kind == Node::Kind::kUnlessNext) {
      refuse("a lookahead is not repeated");
    }
    Node repeat{.kind = Node::Kind::kRepeat, .least = least, .most = most};
    repeat.lazy = take_if(U'?');
    repeat.possessive = !repeat.lazy && take_if(U'+');
    if (most == kUnbounded && can_be_empty(node)) {
      refuse("an unbounded repetition of something that can be empty");
    }
    repeat.children.push_back(std::move(node));
    if (!at_end() && (peek() == U'*' || peek() == U'{')) refuse("a quantifier after a quantifier");
    return repeat;
  }

  std::uint32_t number() {
    std::uint32_t value = 0;
    bool any = false;
    while (!at_end() && peek() >= U'0' && peek() <= U'9') {
      value = value * 10 + static_cast<std::uint32_t>(take() - U'0');
      any = true;
      if (value > kMaxRepeats) refuse("a count above 1000");
    }
    if (!any) refuse("a count without a number");
    return value;
  }

  // After the backslash.
  CodePointSet escape() {
    const char32_t c = take();
    switch (c) {
      case U'p':
        return property();
      case U'P':
        return property().negated();
      case U's':
        return CodePointSet::property("White_Space");
      case U'S':
        return CodePointSet::property("White_Space").negated();
      case U'd':
        return CodePointSet::property("Nd");
      case U'D':
        return CodePointSet::property("Nd").negated();
      case U'w':
        return word();
      case U'W':
        return word().negated();
      case U'r':
        return CodePointSet::of('\r', '\r');
      case U'n':
        return CodePointSet::of('\n', '\n');
      case U't':
        return CodePointSet::of('\t', '\t');
      case U'f':
        return CodePointSet::of('\f', '\f');
      case U'v':
        return CodePointSet::of('\v', '\v');
      default:
        break;
    }
    const bool letter_or_digit =
        (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9');
    if (letter_or_digit) {
      refuse(fmt::format("the escape \\{} is not supported", static_cast<char>(c)));
    }
    return CodePointSet::of(c, c);
  }

  static CodePointSet word() {
    CodePointSet set;
    for (const char* name : {"L", "M", "Nd", "Pc"}) set.add(CodePointSet::property(name));
    return set;
  }

  CodePointSet property() {
    std::string name;
    if (take_if(U'{')) {
      while (!take_if(U'}')) {
        const char32_t c = take();
        if (c > 127) refuse("a property whose name is not ASCII");
        name.push_back(static_cast<char>(c));
      }
    } else {
      const char32_t c = take();
      if (c > 127) refuse("a property whose name is not ASCII");
      name.push_back(static_cast<char>(c));
    }
    const bool negate = name.starts_with('^');
    const CodePointSet set = CodePointSet::property(std::string_view(name).substr(negate ? 1 : 0));
    return negate ? set.negated() : set;
  }

  // After the opening bracket.
  CodePointSet bracket() {
    const bool negate = take_if(U'^');
    CodePointSet set;
    bool first = true;
    while (first || peek() != U']') {
      first = false;
      const char32_t c = take();
      if (c == U'[' || (c == U'&' && peek() == U'&')) {
        refuse("classes inside classes are not supported");
      }
      CodePointSet one = c == U'\\' ? escape() : CodePointSet::of(c, c);
      const bool single =
          one.ranges().size() == 1 && one.ranges().front().first == one.ranges().front().second;
      if (single && peek() == U'-' && peek(1) != U']' && at_ + 1 < characters_.size()) {
        take();
        const char32_t end = take();
        const CodePointSet last = end == U'\\' ? escape() : CodePointSet::of(end, end);
        const char32_t from = one.ranges().front().first;
        const char32_t to = last.ranges().front().first;
        if (last.ranges().size() != 1 || last.ranges().front().second != to || to < from) {
          refuse("a range of characters without order");
        }
        one = CodePointSet::of(from, to);
      }
      set.add(one);
    }
    take();
    return negate ? set.negated() : set;
  }

  // `after`: what can follow the node. A possessive repetition of a class is a greedy one when
  // nothing that follows begins with its characters.
  void check_possessive(const Node& node, const CodePointSet& after) const {
    if (node.kind == Node::Kind::kRepeat && node.possessive) {
      CodePointSet own = first_characters(node.children.front());
      const bool exact = node.most != kUnbounded && node.most > 1;
      if (overlap(own, after) && !exact) {
        refuse("a possessive quantifier that would take what follows it");
      }
    }
    if (node.kind == Node::Kind::kSequence) {
      for (std::size_t i = 0; i < node.children.size(); ++i) {
        CodePointSet next;
        std::size_t j = i + 1;
        for (; j < node.children.size(); ++j) {
          next.add(first_characters(node.children[j]));
          if (!can_be_empty(node.children[j])) break;
        }
        if (j == node.children.size()) next.add(after);
        check_possessive(node.children[i], next);
      }
      return;
    }
    for (const Node& child : node.children) check_possessive(child, after);
  }

  std::string_view pattern_;
  std::vector<char32_t> characters_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
};

class Compiler final {
 public:
  explicit Compiler(std::string_view pattern) : pattern_(pattern) {}

  PatternProgram run(const Node& root) {
    emit(root);
    push({Op::kMatch});
    return std::move(program_);
  }

 private:
  std::uint32_t push(PatternProgram::Instruction instruction) {
    PENTATRON_CHECK(program_.instructions.size() < kMaxInstructions, kData,
                    "pattern {}: it is too large", quoted_for_message(std::string(pattern_)));
    program_.instructions.push_back(instruction);
    return static_cast<std::uint32_t>(program_.instructions.size() - 1);
  }
  [[nodiscard]] std::uint32_t here() const {
    return static_cast<std::uint32_t>(program_.instructions.size());
  }
  std::uint32_t keep(const CodePointSet& set) {
    for (std::size_t i = 0; i < program_.sets.size(); ++i) {
      if (program_.sets[i].ranges() == set.ranges()) return static_cast<std::uint32_t>(i);
    }
    program_.sets.push_back(set);
    return static_cast<std::uint32_t>(program_.sets.size() - 1);
  }

  void emit(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kSet:
        push({Op::kTake, keep(node.set)});
        return;
      case Node::Kind::kIfNext:
        push({Op::kIfNext, keep(node.set)});
        return;
      case Node::Kind::kUnlessNext:
        push({Op::kUnlessNext, keep(node.set)});
        return;
      case Node::Kind::kSequence:
        for (const Node& child : node.children) emit(child);
        return;
      case Node::Kind::kAlternatives:
        return emit_alternatives(node);
      case Node::Kind::kRepeat:
        return emit_repeat(node);
    }
  }

  void emit_alternatives(const Node& node) {
    std::vector<std::uint32_t> jumps;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool last = i + 1 == node.children.size();
      const std::uint32_t split = last ? 0 : push({Op::kSplit, here() + 1});
      emit(node.children[i]);
      if (last) break;
      jumps.push_back(push({Op::kJump}));
      program_.instructions[split].b = here();
    }
    for (const std::uint32_t jump : jumps) program_.instructions[jump].a = here();
  }

  // Sets the way out of a split to here; the way in is the next instruction.
  void leave_here(std::uint32_t split, bool lazy) {
    PatternProgram::Instruction& instruction = program_.instructions[split];
    instruction.a = split + 1;
    instruction.b = here();
    if (lazy) std::swap(instruction.a, instruction.b);
  }

  void emit_repeat(const Node& node) {
    const Node& body = node.children.front();
    for (std::uint32_t i = 0; i < node.least; ++i) emit(body);
    if (node.most == kUnbounded) {
      const std::uint32_t split = push({Op::kSplit});
      emit(body);
      push({Op::kJump, split});
      leave_here(split, node.lazy);
      return;
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = node.least; i < node.most; ++i) {
      splits.push_back(push({Op::kSplit}));
      emit(body);
    }
    for (const std::uint32_t split : splits) leave_here(split, node.lazy);
  }

  std::string_view pattern_;
  PatternProgram program_;
};

}  // namespace

PatternProgram parse_pattern(std::string_view pattern) {
  return Compiler(pattern).run(Parser(pattern).run());
}

}  // namespace pentatron::tokenizers

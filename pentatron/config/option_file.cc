// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::config {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxLeaves = 10'000;

class Flattener final {
 public:
  explicit Flattener(std::string_view label) : label_(label) {}

  void walk(const YAML::Node& mapping, int depth) {
    PENTATRON_CHECK(depth < kMaxDepth, kConfig, "{}: more than {} nested sections", label_,
                    kMaxDepth);
    for (const auto& entry : mapping) {
      count();
      PENTATRON_CHECK(entry.first.IsScalar(), kConfig, "{}:{}: a key is not a plain word", label_,
                      entry.first.Mark().line + 1);
      if (entry.second.IsMap()) {
        walk(entry.second, depth + 1);
      } else {
        add_leaf(entry.first, entry.second);
      }
    }
  }

  std::vector<FileValue> take() { return std::move(values_); }

 private:
  // Every step of the walk, sections too: aliases make a small text a huge tree.
  void count() {
    PENTATRON_CHECK(++num_visited_ <= kMaxLeaves, kConfig, "{}: more than {} values", label_,
                    kMaxLeaves);
  }

  void add_leaf(const YAML::Node& key, const YAML::Node& node) {
    FileValue value{.key = key.Scalar(), .line = key.Mark().line + 1};
    if (node.IsSequence()) {
      value.is_list = true;
      for (const YAML::Node& item : node) {
        count();
        PENTATRON_CHECK(item.IsScalar(), kConfig, "{}:{}: {} holds a list of something but values",
                        label_, value.line, quoted_for_message(value.key));
        value.words.push_back(item.Scalar());
      }
    } else if (node.IsScalar() && !is_null_word(node)) {
      value.words.push_back(node.Scalar());
    } else {
      value.is_null = true;
    }
    values_.push_back(std::move(value));
  }

  // Python's None is what a dump of Megatron's arguments writes; a quoted word (tag "!") is a text.
  static bool is_null_word(const YAML::Node& node) {
    return node.Tag() != "!" && node.Scalar() == "None";
  }

  std::string label_;
  std::vector<FileValue> values_;
  std::size_t num_visited_ = 0;
};

}  // namespace

namespace {

std::string json_word(const nlohmann::json& node, std::string_view label, std::string_view key) {
  PENTATRON_CHECK(node.is_primitive() && !node.is_null(), kConfig,
                  "{}: {} holds a list of something but values", label, quoted_for_message(key));
  return node.is_string() ? node.get<std::string>() : node.dump();
}

void walk_json(const nlohmann::json& object, std::string_view label, int depth,
               std::vector<FileValue>& values) {
  PENTATRON_CHECK(depth < kMaxDepth, kConfig, "{}: more than {} nested sections", label, kMaxDepth);
  for (const auto& [key, node] : object.items()) {
    if (node.is_object()) {
      walk_json(node, label, depth + 1, values);
      continue;
    }
    PENTATRON_CHECK(values.size() < kMaxLeaves, kConfig, "{}: more than {} values", label,
                    kMaxLeaves);
    FileValue value{.key = key, .is_null = node.is_null(), .is_list = node.is_array()};
    if (node.is_array()) {
      for (const nlohmann::json& item : node) value.words.push_back(json_word(item, label, key));
    } else if (!node.is_null()) {
      value.words.push_back(json_word(node, label, key));
    }
    values.push_back(std::move(value));
  }
}

// Whether a document holds anything.
class Content final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override { seen_ = true; }
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    seen_ = true;
  }
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {
    seen_ = true;
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    seen_ = true;
  }
  void OnMapEnd() override {}
  [[nodiscard]] bool seen() const { return seen_; }

 private:
  bool seen_ = false;
};

// By no more than two steps: the library's function for all documents does not end on some texts.
bool has_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Content first, second;
  return parser.HandleNextDocument(first) && parser.HandleNextDocument(second) && second.seen();
}

}  // namespace

std::vector<FileValue> parse_yaml_options(const std::string& text, std::string_view label) {
  try {
    const YAML::Node root = YAML::Load(text);
    PENTATRON_CHECK(!has_second_document(text), kConfig,
                    "{}: a second document begins behind '---': one file is one set of options",
                    label);
    if (root.IsNull()) return {};
    PENTATRON_CHECK(root.IsMap(), kConfig, "{}: expected a mapping of option names to values",
                    label);
    Flattener flattener(label);
    flattener.walk(root, 0);
    return flattener.take();
  } catch (const YAML::Exception& error) {
    PENTATRON_THROW(kConfig, "{}:{}: not YAML or JSON: {}", label, error.mark.line + 1, error.msg);
  }
}

std::vector<FileValue> parse_json_options(const std::string& text, std::string_view label) {
  const nlohmann::json root = parse_json(text, label);
  PENTATRON_CHECK(root.is_object(), kConfig, "{}: expected an object of option names and values",
                  label);
  std::vector<FileValue> values;
  walk_json(root, label, 0, values);
  return values;
}

std::vector<FileValue> read_option_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, kMaxFileBytes);
  return path.extension() == ".json" ? parse_json_options(text, path.string())
                                     : parse_yaml_options(text, path.string());
}

}  // namespace pentatron::config

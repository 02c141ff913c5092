// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/config/docs.h"
#include "pentatron/config/json_text.h"
#include "pentatron/config/option_index.h"

namespace pentatron::config {
namespace {

std::filesystem::path source_folder() {
  const char* folder = std::getenv("PENTATRON_SOURCE_DIR");
  return folder != nullptr ? std::filesystem::path(folder)
                           : std::filesystem::path(__FILE__).parent_path() / ".." / "..";
}

nlohmann::json megatron_rows() {
  const auto path = source_folder() / "pentatron" / "config" / "megatron_options.json";
  return parse_json(read_text_file(path), path.string());
}

// Ours may take fractions where Megatron's takes whole numbers only.
bool kind_fits(OptionKind kind, const std::string& megatron, const OptionSpec& spec) {
  if (spec.dest == "rotary_base") return megatron == "int" && kind == OptionKind::kFloat;
  if (megatron == "int") return kind == OptionKind::kInt;
  if (megatron == "float") return kind == OptionKind::kFloat;
  if (megatron == "switch on") return kind == OptionKind::kSwitchOn;
  if (megatron == "switch off") return kind == OptionKind::kSwitchOff;
  if (megatron == "on/off pair") return kind == OptionKind::kSwitchPair;
  return kind == OptionKind::kString || kind == OptionKind::kSignal;
}

TEST(OptionTable, HoldsEveryOptionOfMegatron) {
  const nlohmann::json rows = megatron_rows();
  ASSERT_EQ(rows.size(), 843U);
  const OptionIndex index;
  const std::map<std::string, std::string> other_default = {{"distributed_backend", "'auto'"},
                                                            {"split", "'969, 30, 1'"},
                                                            {"dataloader_type", "'single'"},
                                                            {"micro_batch_size", "1"}};
  std::set<const OptionSpec*> found;
  for (const auto& row : rows) {
    const std::string name = row["names"][0];
    SCOPED_TRACE(name);
    const OptionSpec* spec = index.find_name(name);
    ASSERT_NE(spec, nullptr);
    found.insert(spec);
    EXPECT_FALSE(spec->ours);
    EXPECT_EQ(spec->names, joined_text(row["names"], ' '));
    EXPECT_EQ(spec->dest, row["dest"].get<std::string>());
    EXPECT_TRUE(kind_fits(spec->kind, row["kind"], *spec)) << row["kind"];
    const auto other = other_default.find(std::string(spec->dest));
    if (other == other_default.end()) {
      EXPECT_EQ(spec->default_repr, python_text(row["default"]));
    } else {
      EXPECT_EQ(spec->default_repr, other->second);
      EXPECT_NE(spec->default_repr, python_text(row["default"]));
      EXPECT_FALSE(spec->default_note.empty());
    }
    EXPECT_EQ(spec->choices, row.contains("choices") ? joined_text(row["choices"], '|') : "");
    const nlohmann::json nargs = row.value("nargs", nlohmann::json(""));
    const std::string nargs_text = nargs.is_string() ? nargs.get<std::string>() : nargs.dump();
    EXPECT_EQ(spec->nargs, nargs_text.empty() ? '\0' : nargs_text.front());
  }
  EXPECT_EQ(found.size(), 843U);
  for (const OptionSpec* spec : index.rows()) {
    EXPECT_TRUE(spec->ours || found.contains(spec)) << spec->names << " is in no list";
  }
}

TEST(OptionTable, NoSpellingTwice) {
  std::set<std::string_view> names;
  for (const OptionSpec* spec : all_options()) {
    for (const std::string_view name : split_words(spec->names, ' ')) {
      EXPECT_TRUE(names.insert(name).second)
          << name << " has two rows: drop it from known_options.json when it gets one by hand";
      EXPECT_TRUE(name.starts_with("--") || name == "-h") << name;
    }
  }
}

TEST(OptionTable, EveryClassHasWhatItNeeds) {
  int num_works = 0;
  for (const OptionSpec* spec : all_options()) {
    SCOPED_TRACE(spec->names);
    switch (spec->option_class) {
      case OptionClass::kWorks:
        ++num_works;
        EXPECT_NE(spec->test.find("_test "), std::string_view::npos) << "names no test";
        EXPECT_FALSE(spec->help.empty());
        EXPECT_TRUE(spec->field.set != nullptr || spec->topic == Topic::kRun);
        EXPECT_TRUE(spec->supported.empty() || !spec->reason.empty())
            << "says not why other values are refused";
        break;
      case OptionClass::kSynonym:
        EXPECT_FALSE(spec->stands_for.empty());
        [[fallthrough]];
      case OptionClass::kAlwaysSo:
      case OptionClass::kNoEffect:
      case OptionClass::kPlanned:
      case OptionClass::kNever:
        EXPECT_GE(spec->reason.size(), 10U);
        EXPECT_TRUE(spec->test.empty());
        break;
    }
    EXPECT_EQ(spec->field.set == nullptr, spec->field.get == nullptr);
  }
  EXPECT_GE(num_works, 90);
}

// Names like "config_test Parser.ReadsFiles; functional_test Options.Lr": those of this program
// must exist.
TEST(OptionTable, NamedTestsOfThisModuleExist) {
  std::set<std::string> existing;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      existing.insert(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
    }
  }
  int num_named = 0;
  for (const OptionSpec* spec : all_options()) {
    for (std::string_view entry : split_words(spec->test, ';')) {
      while (entry.starts_with(' ')) entry.remove_prefix(1);
      const std::vector<std::string_view> words = split_words(entry, ' ');
      ASSERT_EQ(words.size(), 2U) << spec->names << ": " << entry;
      if (words[0] != "config_test") continue;
      ++num_named;
      EXPECT_TRUE(existing.contains(std::string(words[1]))) << spec->names << ": " << entry;
    }
  }
  EXPECT_GE(num_named, 25);
}

TEST(OptionTable, FieldsAreBornWithTheDefaultOfTheirRow) {
  const RunConfig config;
  for (const OptionSpec* spec : all_options()) {
    if (spec->field.get == nullptr || spec->kind == OptionKind::kSignal) continue;
    EXPECT_EQ(python_text(current_value(*spec, config), true), spec->default_repr) << spec->names;
  }
  EXPECT_EQ(config.training.exit_signal, "SIGTERM");
}

// A row bound to another row's field would be the worst of typing errors.
TEST(OptionTable, EveryRowSetsItsOwnField) {
  for (const OptionSpec* spec : all_options()) {
    if (spec->field.set == nullptr) continue;
    SCOPED_TRACE(spec->names);
    RunConfig config;
    OptionValue value = spec->field.get(config);
    if (auto* flag = std::get_if<bool>(&value)) {
      *flag = !*flag;
    } else if (auto* integer = std::get_if<std::int64_t>(&value)) {
      *integer += 7;
    } else if (auto* number = std::get_if<double>(&value)) {
      *number += 0.5;
    } else if (auto* text = std::get_if<std::string>(&value)) {
      *text += "x";
    } else if (auto* list = std::get_if<std::vector<std::string>>(&value)) {
      list->push_back("x");
    } else {
      value = 0.25;
    }
    if (spec->dest == "num_query_groups") config.model.group_query_attention = true;
    spec->field.set(config, value);
    EXPECT_EQ(spec->field.get(config), value);
    for (const OptionSpec* other : all_options()) {
      if (other == spec || other->field.get == nullptr) continue;
      RunConfig untouched;
      untouched.model.group_query_attention = spec->dest == "num_query_groups";
      if (other->dest == spec->dest) continue;
      EXPECT_EQ(other->field.get(config), other->field.get(untouched)) << other->names;
    }
  }
}

TEST(OptionTable, DocumentationIsUpToDate) {
  const auto path = source_folder() / "docs" / "megatron_options.md";
  const std::string text = options_markdown();
  EXPECT_TRUE(read_text_file(path) == text + "\n")
      << "run `pentatron options --markdown > docs/megatron_options.md`";
  for (const auto& row : megatron_rows()) {
    const std::string name = row["names"][0];
    EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << name;
  }
}

TEST(OptionIndex, FindsNearNames) {
  const OptionIndex index;
  EXPECT_EQ(index.nearest("--num-layer").front(), "--num-layers");
  EXPECT_EQ(index.nearest("--num_layers").front(), "--num-layers");
  EXPECT_EQ(index.nearest("--hiden-size").front(), "--hidden-size");
  EXPECT_EQ(index.nearest("--swilgu").front(), "--swiglu");
  EXPECT_EQ(index.nearest("--tensor-model-parallel").front(), "--tensor-model-parallel-size");
  EXPECT_TRUE(index.nearest("--zzzzzzzzzz").empty());
  EXPECT_LE(index.nearest("--lr-warmup-iter").size(), 2U);
}

TEST(OptionIndex, EditDistance) {
  EXPECT_EQ(edit_distance("abc", "abc", 3), 0);
  EXPECT_EQ(edit_distance("abc", "acb", 3), 1);
  EXPECT_EQ(edit_distance("abc", "ab", 3), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting", 3), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), 3);
  EXPECT_EQ(edit_distance("", "abcdef", 2), 3);
}

}  // namespace
}  // namespace pentatron::config

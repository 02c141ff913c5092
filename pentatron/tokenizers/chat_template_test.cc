// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

// Expectations are what Jinja writes; tools/reference/chat_template_reference.py compares far more.
namespace pentatron::tokenizers {
namespace {

using Json = nlohmann::ordered_json;

const Json kMessages = Json::parse(R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": " Hi! "},
  {"role": "assistant", "content": "Hello."}])");

std::string render(const std::string& source, const Json& more = Json::object(),
                   const Json& messages = kMessages) {
  return ChatTemplate(source, "t")
      .render(messages, more, {.bos_token = "<s>", .eos_token = "</s>", .now = 86400 * 365});
}

TEST(ChatTemplate, WhiteSpaceAsInModelLibraries) {
  // A tag takes its line feed and the blanks before it; signs take more or keep all.
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {{ 1 }}\n b"), "a\n  1\n b");
  EXPECT_EQ(render("a \n {%- if true -%} \n b {%- endif +%}\nc"), "ab\nc");
  EXPECT_EQ(render("a\n  {%+ if true %}b{% endif %}"), "a\n  b");
  EXPECT_EQ(render("a\n  {# note #}\nb {#- note -#} c"), "a\nbc");
  EXPECT_EQ(render("{{ 'x' -}} \r\n y"), "xy");
}

TEST(ChatTemplate, Conversations) {
  const std::string chatml =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim + "
      "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
      "}}{% endif %}";
  EXPECT_EQ(render(chatml),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>assistant\n");
  const ChatTemplate without(chatml, "t");
  EXPECT_TRUE(without.render(kMessages, {}, {.add_generation_prompt = false})
                  .ends_with("Hello.<|im_end|>\n"));
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'system' %}"
                   "{% set ns.n = ns.n + m.content|length %}{{ loop.index }}/{{ loop.length }} "
                   "{% endfor %}{{ ns.n }}{{ bos_token }}{{ eos_token }}"),
            "1/2 2/2 11<s></s>");
  EXPECT_EQ(render("{{ tools is none }} {{ documents }} {{ missing is defined }}"),
            "True None False");
}

// Templates as families publish them, by what they write.
TEST(ChatTemplate, StylesOfFamilies) {
  const char* root = std::getenv("PENTATRON_SOURCE_DIR");
  const std::filesystem::path folder =
      std::filesystem::path(root == nullptr ? "." : root) / "tools/reference/chat_templates";
  const auto written = [&](const char* style, const Json& messages) {
    return render(read_text_file(folder / (std::string(style) + "_style.jinja")), Json::object(),
                  messages);
  };
  EXPECT_EQ(written("falcon", kMessages), "System: Be brief.\nUser: Hi!\nFalcon: Hello.\nFalcon:");
  EXPECT_EQ(written("nemotron", kMessages),
            "<extra_id_0>System\nBe brief.\n<extra_id_1>User\nHi!\n<extra_id_1>Assistant\nHello.\n"
            "<extra_id_1>Assistant\n");
  EXPECT_EQ(written("olmo2", kMessages),
            "<s><|system|>\nBe brief.\n<|user|>\n Hi! \n<|assistant|>\nHello.</s><|assistant|>\n");
  const Json talk = {kMessages[1], kMessages[2]};
  EXPECT_EQ(written("starcoder2", talk),
            "<s>You write programs that work and say briefly why.\n\n### Instruction\n Hi! \n\n"
            "### Response\nHello.</s>\n\n### Response\n");
  expect_error(ErrorKind::kData, "stands nowhere", [&] { (void)written("starcoder2", kMessages); });
}

TEST(ChatTemplate, ToolsAsJson) {
  const Json more = Json::parse(
      R"({"tools": [{"name": "f", "about": "é \"q\" <b>", "n": 1.0, "list": [true, null]}]})");
  EXPECT_EQ(render("{{ tools[0] | tojson }}", more),
            R"({"name": "f", "about": "é \"q\" <b>", "n": 1.0, "list": [true, null]})");
  EXPECT_EQ(render("{{ tools[0].list | tojson(indent=2) }}", more), "[\n  true,\n  null\n]");
  EXPECT_EQ(render("{{ tools[0] }}", more),
            "{'name': 'f', 'about': 'é \"q\" <b>', 'n': 1.0, 'list': [True, None]}");
}

TEST(ChatTemplate, Expressions) {
  const std::pair<const char*, const char*> cases[] = {
      {"(1 + 2 * 3) ~ 4", "74"},
      {"-7 // 2 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 / 2", "-4 2 3.5"},
      {"'abc'[::-1] + 'abc'[-2:]", "cbabc"},
      {"'Größe'[2:4] | upper", "ÖSS"},
      {"[1, 2][5] is defined or 2 in [1, 2] and not false", "True"},
      {"'a,b,c'.split(',', 1)[-1]", "b,c"},
      {"{'a': {'b': [10, 20]}}.a['b'][-1]", "20"},
      {"'x' if missing else 'y'", "y"},
      {"(1, 'a', none, 2.50)", "(1, 'a', None, 2.5)"},
      {"[3, 1, 2] | sort | join('<')", "1<2<3"},
      {"messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first",
       " Hi! "},
      {"messages[0].items() | list | length", "2"},
      {"strftime_now('%d %b %Y')[3:]", "Jan 1971"},
      {"'a' 'b' ~ \"\\n\" ~ '\\u00e9'", "ab\né"},
  };
  for (const auto& [expression, text] : cases) {
    EXPECT_EQ(render(std::string("{{ ") + expression + " }}"), text) << expression;
  }
}

TEST(ChatTemplate, StatementsAndScopes) {
  EXPECT_EQ(
      render("{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
      "1231");
  EXPECT_EQ(render("{% macro m(a, b='!') %}{{ a }}{{ b }}{{ messages|length }}{% endmacro %}"
                   "{{ m('hi') ~ m(b='?', a='ho') }}"),
            "hi!3ho?3");
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
                   "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "023");
  EXPECT_EQ(render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% else %}none{% endfor %}"
                   "{% for x in [] %}{% else %}none{% endfor %}"),
            "a1none");
  EXPECT_EQ(
      render("{% set t %} x{{ 1 }} {% endset %}[{{ t }}]{% generation %}g{% endgeneration %}"),
      "[ x1 ]g");
}

TEST(ChatTemplate, ProblemsNameTheirPlace) {
  const auto refused = [](ErrorKind kind, const std::string& source, const std::string& part) {
    expect_error(kind, part, [&] { (void)render(source); });
  };
  refused(ErrorKind::kData, "a\n {{ raise_exception('no system role') }}",
          "t:2:20: the template refuses: no system role");
  refused(ErrorKind::kData, "{% if x %}", "{% endif %} is missing");
  refused(ErrorKind::kData, "\n{{ 1 + }}", "t:2:8: expected a value");
  refused(ErrorKind::kData, "{{ 'a", "t:1:4: a string does not end");
  refused(ErrorKind::kData, "{{ missing.x }}", "'missing' is not defined");
  refused(ErrorKind::kData, "{{ 'a' + 1 }}", "t:1:8: '+' of str and int");
  refused(ErrorKind::kData, "{{ 1 / 0 }}", "division by zero");
  refused(ErrorKind::kUnsupported, "{% include 'x' %}", "t:1:1: {% include %} is not supported");
  refused(ErrorKind::kUnsupported, "{{ 1 | random }}",
          "t:1:6: the filter 'random' is not supported");
  refused(ErrorKind::kUnsupported, "{{ 1 is prime }}", "the test 'prime' is not supported");
  refused(ErrorKind::kUnsupported, "{{ [].append(1) }}",
          "append() is not defined, or not supported");
  refused(ErrorKind::kUnsupported, "{% for x in [] recursive %}",
          "a recursive loop is not supported");
  expect_error(ErrorKind::kData, "a message is an object",
               [] { (void)render("x", Json::object(), Json::parse("[3]")); });
  expect_error(ErrorKind::kData, "at least one message",
               [] { (void)render("x", Json::object(), Json::array()); });
}

// Work, memory and depth are bounded: each of these would go on for hours, or through the memory or
// the stack.
TEST(ChatTemplate, HostileTemplatesEnd) {
  const auto refused = [](const std::string& source) {
    EXPECT_THROW((void)render(source), Error) << source.substr(0, 100);
  };
  const std::string loop = "{% for a in range(100000) %}";
  refused(loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}");
  refused("{% set n = namespace(s='x') %}" + loop + "{% set n.s = n.s + n.s %}{% endfor %}");
  refused("{% set n = namespace(l=[1]) %}" + loop + "{% set n.l = n.l + n.l %}{% endfor %}");
  refused("{% set n = namespace(l=[]) %}" + loop + "{% set n.l = [n.l] %}{% endfor %}");
  refused("{{ 'x' * 1000000000000 }}");
  refused("{{ 'x' * 9000000 * 9000000 }}");
  refused(loop + "{{ 'x' * 100000 }}{% endfor %}");
  refused("{{ range(1000000000) }}");
  refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  refused("{{ 9223372036854775807 + 1 }}");
  refused("{{ 10 ** 1000000 }}");
  refused("{{ " + std::string(100'000, '(') + "1");
  refused("{{ " + std::string(100'000, '-') + "1 }}");
  std::string nested;
  std::string list = "{{ ";
  for (int i = 0; i < 100'000; ++i) {
    nested += "{% if 1 %}";
    list += "[";
  }
  refused(nested);
  refused(list);
  std::string operators = "{{ 1";
  for (int i = 0; i < 100'000; ++i) operators += " + 1";
  refused(operators + " }}");
}

TEST(ChatTemplate, FoundInAModelsFolder) {
  const TempFolder folder;
  EXPECT_FALSE(load_chat_template(folder.path()).has_value());
  const auto config = folder.path() / "tokenizer_config.json";
  write_file_atomically(config, R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>",
    "chat_template": [{"name": "tool_use", "template": "no"},
                      {"name": "default", "template": "{{ bos_token + eos_token }}"}]})");
  const auto text = [&](const std::filesystem::path& path) {
    const auto model = load_chat_template(path);
    return model->chat_template.render(kMessages, {}, model->options);
  };
  EXPECT_EQ(text(folder.path()), "<b><e>");
  EXPECT_EQ(text(folder.path() / "tokenizer.json"), "<b><e>");
  write_file_atomically(folder.path() / "chat_template.jinja", "own {{ eos_token }}");
  EXPECT_EQ(text(folder.path()), "own <e>");
  write_file_atomically(config, R"({"chat_template": 3})");
  std::filesystem::remove(folder.path() / "chat_template.jinja");
  expect_error(ErrorKind::kData, "neither a text nor a list",
               [&] { (void)load_chat_template(folder.path()); });
}

}  // namespace
}  // namespace pentatron::tokenizers

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our chat templates with Jinja itself, set up as model libraries set it up: whole templates in the style of the families
(chat_templates/), many small expressions, and random arrangements of tags, white space and text.

  chat_template_reference.py --tool build/release/bin/chat_template_tool [--random 3000] [--templates FILE_OR_FOLDER ...]

Whole templates are also rendered by `transformers` itself, which must say what Jinja, set up here, says. Where Jinja raises an error, ours must too. --templates: further templates (.jinja, tokenizer_config.json). Runs under the Python that has
the wheels (PENTATRON_REFERENCE_PYTHON, else .deps/reference-venv/bin/python); exit code 1 on a difference.
"""
import argparse
import datetime
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys

import venv_python

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOW = 1_718_000_000
# What Python prints of its iterators: our filters give lists.
ITERATOR = re.compile(r"<\w+ object|<generator object|dict_(items|keys|values)\(|range\(")

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather at a place, \"now\" & later.", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "a town, as in 'Köln'"},
            "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 7.5},
            "unit": {"enum": ["C", "F"]},
            "more": {"type": "object", "properties": {"wind": {"type": "boolean"}}, "required": ["wind"]}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "clock", "description": "Time.", "parameters": {"type": "object", "properties": {}}}},
]
CALL = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Paris \U0001f1eb\U0001f1f7", "days": "3"}}}
TURNS = [
    [{"role": "user", "content": "Hello, who are you?"}],
    [{"role": "system", "content": "  Be brief. /no_think "}, {"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "Hello!\n\n"},
     {"role": "user", "content": "Größe? 日本 \"quoted\" 'single' \\ <b>&amp;"}],
    [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>\nlet me see\n</think>\n\nA </think> B"},
     {"role": "user", "content": "Q2"}, {"role": "assistant", "content": "<think>\nagain\n</think>\n\nA2", "reasoning_content": "deep"}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
     {"role": "tool", "content": "sunny", "tool_call_id": "call12345", "name": "get_weather"},
     {"role": "tool", "content": "warm", "tool_call_id": "call12345"}, {"role": "assistant", "content": "It is sunny."}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
     {"role": "tool", "content": {"content": [1, 2.0, True, None]}}],
    [{"role": "system", "content": [{"type": "text", "text": "In parts."}]},
     {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is it? "}]}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "developer", "content": ""}],
]
MORE = [{}, {"tools": TOOLS}, {"tools": TOOLS, "tools_first": False, "enable_thinking": False, "builtin": ["code_interpreter", "search"]},
        {"enable_thinking": True, "thinking": True, "documents": [{"title": "T", "text": "x"}]}]

# Each stands alone, and after "x = it" for the variables below.
VALUES = {"n": 7, "f": 2.5, "s": "Hello Wörld", "e": "", "l": [3, 1, 2], "d": {"b": 1, "a": {"c": [1, 2]}}, "t": True, "z": None,
          "words": ["b", "A", "c", "a"], "rows": [{"k": 2, "v": "x"}, {"k": 1, "v": "Y"}, {"k": 3}], "nl": "one\n\ntwo\r\n three ", "big": 10 ** 15}
EXPRESSIONS = """
n + 1|n - 10 * 2|n / 2|n // 2|-n // 2|n % 4|-n % 4|n ** 2|2 ** -1|f * 2|f // 1|7.0|1e3|1e20|0.1 + 0.2|1e-5|123456789.0 * 1000000000|n ~ s ~ f ~ t ~ z
s[0]|s[-1]|s[1:4]|s[::-1]|s[:-2]|s[10:]|s[::2]|s[-3::-1]|l[0]|l[-1]|l[1:]|l[5]|l[::-1]|s[99]|d['a']|d.a.c[1]|d.missing|d['missing']|d.a['c'][0:1]|(1, 2)|(1,)|()|[1, 'a', none]
{'a': 1, 'b': [2.0, "it's"]}|{"q": 'say "hi"', 'r': "it's \\"x\\""}|'tab\\t nl\\n q\\' u\\u00e9'|"a" "b"|not t|not e|n > 3 and s|e or 'other'|n == 7.0|'a' < 'b'|[1, 2] < [1, 3]|n in l
3 in l|'lo' in s|'b' in d|'x' not in d|n not in [7]|'yes' if n > 3 else 'no'|'yes' if n < 3|missing|missing.x|missing['x']|missing is defined|n is defined|z is none|s is string
d is mapping|l is iterable|s is iterable|n is iterable|l is sequence|n is number|f is float|n is integer|t is integer|t is boolean|t is true|n is odd|n is even|n is divisibleby 7|n is divisibleby(2)
n is in [7, 8]|n is eq 7|n is equalto 8|n is gt 3|n is not none|not n is none|missing is undefined|s|upper|s|lower|'élan VITAL'|capitalize|"they're bill's friends x2y"|title|' x '|trim
'xxaxx'|trim('x')|s|length|d|length|missing|length|l|join(', ')|rows|join('-', attribute='k')|l|first|l|last|[]|first|missing|default('d')|e|default('d')|e|default('d', true)|z|d('q')|s|replace('l', 'L')
s|replace('l', 'L', 1)|l|reverse|list|s|reverse|l|sort|words|sort|words|sort(reverse=true)|words|sort(case_sensitive=true)|rows|sort(attribute='k')|map(attribute='v')|list|d|dictsort|d|items|list
words|unique|list|l|sum|rows|sum(attribute='k')|l|max|l|min|words|max|'12'|int|'x'|int(5)|' 3.7 '|int|f|int|n|float|'2.5'|float|'-1'|int + 1|n|string + 'x'|l|string|-5|abs|l|map('string')|list
words|map('upper')|join|rows|map(attribute='v', default='-')|list|l|select('odd')|list|l|reject('gt', 1)|list|rows|selectattr('v')|list|rows|selectattr('k', 'gt', 1)|list|rows|rejectattr('k', 'eq', 2)|map(attribute='k')|list
words|select('in', ['a', 'b'])|list|d|tojson|rows|tojson(indent=2)|l|tojson(indent=4)|[]|tojson(indent=2)|{}|tojson(indent=2)|s|tojson|s|tojson(ensure_ascii=true)|d|tojson(separators=(',', ':'))|d|tojson(sort_keys=true)
[t, z, f, 1.0, 1e100]|tojson|'"\\\\\\n\\x01/<é'|tojson|nl|indent|nl|indent(2, true)|nl|indent(width=3, blank=true)|nl.splitlines()|nl.split('\\n')|' a  b c '.split()|'a,b,,c'.split(',')|'a,b,c'.split(',', 1)
'a b c'.split(' ', 1)[1]|'a,b,c'.rsplit(',', 1)|' a b c '.split(none, 1)|' a b  c '.rsplit(maxsplit=1)|'xaxbx'.strip('x')|' a '.lstrip() + '|'|'aab'.lstrip('a')|'baa'.rstrip('a')|s.startswith('He')|s.endswith(('x', 'd'))|s.find('W')|s.find('q')
'ababa'.count('aba')|'ababa'.rfind('a')|'abc'.index('c')|','.join(['a', 'b'])|'abc'.replace('', '-')|'aXb'.swapcase()|'abc'.removeprefix('a')|'abc'.removesuffix('c')|'12'.isdigit()|'a1'.isalnum()|''.isalpha()|'ab'.title()
d.items()|list|d.keys()|list|d.values()|list|d.get('a')|d.get('q')|d.get('q', 3)|l.index(2)|l.count(3)|range(3)|list|range(1, 4)|list|range(5, 0, -2)|list|range(0)|list|dict(a=1, b=2)|dict(d, q=2)|namespace(a=1).a|namespace(a=1).b
'a' * 3|3 * 'ab'|'x' * -1|l + [4]|(1,) + (2,)|'a' + 1|n + s|1 / 0|n % 0|l < 3|none + 1|-s|s()|missing()|l['a']|d[0]|n[0]|f.x|t + 1|true == 1|'1' == 1|none == false|[] == ()|d == {'a': {'c': [1, 2]}, 'b': 1}
1 < 2 == true|big * 1000|1_000|0x10|'a'.b.c|s.upper().lower().title()|(s|lower).split('o')|s|lower|upper|'%s-%d' % ('a', 3)|'{} {}'.format(1, 2)|l|batch(2)|list|s|wordcount|s|center(20)|s|e|'<b>'|escape|'<b>'|safe
n is sameas 7|s is upper|s is lower|l|random|1 if 2 if 3 else 4 else 5|not not n|- - n|n if t else 1 if z else 2|[n, s][1]|{'x': l}.x[0]|{'x': 1}['x']|(n, s)[0]|loop|loop.index|raise_exception('no')|strftime_now('%Y-%m-%d %H')
"\\x41\\u0042\\101"|'a\\qb'|'a\\
b'|[1, 2, ]|{'a': 1, }|(1, 2, )|rows[0].k + rows[1]['k']|words[n - 5:]|'Привет'|upper|'ß'|upper|'İ'|lower|'a-b c'|title|'ǆ'|capitalize|l is mapping|range is callable|n is callable|s is mapping
"""
STATEMENTS = [
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.last }}{% else %}b{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in [[1, 2, 3]] %}{{ k }}{% endfor %}", "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 1 %}{% for x in l %}{% set y = y + x %}{{ y }} {% endfor %}{{ y }}",
    "{% if t %}{% set y = 5 %}{% endif %}{{ y }}", "{% set ns = namespace(y=1) %}{% for x in l %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}", "{% set ns = namespace() %}{% set ns.q = 3 %}{{ ns.q }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set d.x = 1 %}", "{% set q %}a{{ n }}b{% endset %}[{{ q }}]{{ q|length }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(b=1, a=0) }} {{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}",
    "{% macro m(k) %}{% if k %}{{ k }}{{ m(k - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% set y = 1 %}{% macro m() %}{{ y }}{{ x }}{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}", "{% macro m() %}{% set y = 4 %}{{ y }}{% endmacro %}{{ m() }}{{ y }}",
    "{% macro m() %} a {% endmacro %}[{{ m()|trim }}]{{ m().strip() + '!' }}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% break %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}", "{% for x in d %}{{ x }}{% endfor %}", "{% for x in missing %}a{% endfor %}b",
    "{% for x in n %}a{% endfor %}", "{% if missing %}a{% elif n %}b{% else %}c{% endif %}", "{% if n == 1 %}a{% elif n == 2 %}b{% elif n == 7 %}c{% else %}d{% endif %}", "{% generation %}a{{ n }}{% endgeneration %}", "a{# comment #}b{#- c -#} d",
    "{{ '{{' }}{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}}}}", "{{ {'a': 1} }}", "{ {a} } { %", "{{ n }", "{% if n %}", "{% endif %}", "{{ }}", "{{ n n }}", "{% foo %}", "{{ (n }}", "{{ n) }}", "{% set = 3 %}", "{% for in l %}{% endfor %}", "{{ 'a }}",
    "{# x", "{% macro m(a=1, b) %}{% endmacro %}", "line one\n{{ n }}\nline two\n", "{{ n }}\n\n", "{%- set x = 1 -%}\n\n a", "a  {%- if t %} b {% endif -%}  c", "  {% if t %}\n  yes\n  {% endif %}\nend", "  {%+ if t %}a{%+ endif +%}\n b",
    "{% if t +%}\na\n{% endif %}", "a\n  {# note #}\nb", "a {# note #}\nb", "\t{% set q = 1 %}\t\n x", "{{ n -}} \n x {{- n }}", "a\r\n{% if t %}\r\nb\r\n{% endif %}\r\n", "{{ messages[0].role }}{{ messages|length }}", "{{ tools }}{{ documents is none }}",
    "{% for m in messages %}{{ m.items is defined }}{{ m['items'] is defined }}{{ m.keys()|list }}{% endfor %}", "{% set messages = [] %}{{ messages }}", "{% set x = 'a' %}{% set x = x + 'b' %}{{ x }}", "{% set l2 = l + [1] %}{{ l2 }}{{ l }}",
    "{% do l.append(1) %}", "{{ l.append(1) }}", "{{ ''.join(['a']) if t }}", "{% for x in range(3) %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{% endfor %}", "{% set x = namespace(a=namespace()) %}",
    "{% if t %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% set loop = 5 %}{{ loop }}", "{% for x in l %}{% set loop = 9 %}{{ loop }}{% endfor %}",
    "{{ n if n is defined and n is number else 'x' }}", "{{ 'a' if missing is defined else 'b' ~ 'c' }}", "{{ not missing is defined and n == 7 }}", "{{ n is defined and not n is none }}", "{{ 1 + 2 ~ 3 + 4 }}", "{{ 2 ** 3 ** 2 }}", "{{ -2 ** 2 }}", "{{ -n|abs }}",
    "{{ 'a' ~ 'b' | upper }}", "{{ 1 + 2 | string }}", "{{ s.__class__ }}", "{{ d.__len__ }}", "{{ ''.__class__.__mro__ }}",
]


def environment():
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return body

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(NOW).strftime(format)
    return env


def expected(env, request):
    try:
        variables = {"tools": None, "documents": None, **request["more"]}
        for name in ("bos_token", "eos_token"):
            if request.get(name):
                variables[name] = request[name]
        return {"text": env.from_string(request["template"]).render(messages=request["messages"],
                                                                    add_generation_prompt=request["add_generation_prompt"], **variables)}
    except Exception as error:  # any of Python's and Jinja's
        return {"error": f"{type(error).__name__}: {error}"}


def check_transformers(cases):
    """The number of whole templates' cases where `transformers` itself renders another text than Jinja as it is set up here."""
    from transformers.utils.chat_template_utils import render_jinja_template
    different = compared = 0
    for name, request, want in cases:
        if not name.endswith(".jinja") or "strftime_now" in request["template"]:
            continue
        more = dict(request["more"])
        tokens = {key: request[key] for key in ("bos_token", "eos_token") if request[key]}
        try:
            rendered, _ = render_jinja_template([request["messages"]], tools=more.pop("tools", None), documents=more.pop("documents", None),
                                                chat_template=request["template"], add_generation_prompt=request["add_generation_prompt"],
                                                **more, **tokens)
            text = rendered[0]
        except Exception:  # any of Python's and Jinja's
            text = None
        compared += 1
        if text != want.get("text"):
            different += 1
            print(f"TRANSFORMERS DIFFER {name} {json.dumps(request['messages'])[:80]}\n  jinja        {want}\n  transformers {text!r}")
    print(f"{compared} renderings by transformers, {different} different")
    assert compared > 100, "transformers rendered next to nothing"
    return different


def whole_templates(paths):
    found = {path.name: path.read_text() for path in sorted((ROOT / "tools/reference/chat_templates").glob("*.jinja"))}
    for path in paths:
        files = sorted(itertools.chain(path.rglob("*.jinja"), path.rglob("tokenizer_config.json"))) if path.is_dir() else [path]
        for file in files:
            text = file.read_text()
            if file.suffix == ".json":
                text = json.loads(text).get("chat_template")
            for number, one in enumerate(text if isinstance(text, list) else [text] if text else []):
                found[f"{file}:{number}"] = one["template"] if isinstance(one, dict) else one
    return found


def random_templates(count):
    rng = random.Random(7)
    pieces = [" ", "  ", "\n", "\n\n", "\t", "a", "b\n", " c ", "{", "}", "é\n", "{{ n }}", "{{- n }}", "{{ n -}}", "{{- n -}}", "{# x #}", "{#- x #}", "{# x -#}",
              "{% set q = 1 %}", "{%- set q = 2 %}", "{% set q = 3 -%}", "{%- set q = 4 -%}", "{%+ set q = 5 %}", "{% set q = 6 +%}"]
    blocks = [("if t", "endif"), ("if e", "endif"), ("for x in l", "endfor"), ("macro m()", "endmacro"), ("set w", "endset")]
    signs = ["", "-", "+"]

    def some(depth):
        out = ""
        for _ in range(rng.randrange(1, 7)):
            if depth < 3 and rng.random() < 0.3:
                begin, end = rng.choice(blocks)
                out += "{%" + rng.choice(signs) + f" {begin} " + rng.choice(signs) + "%}" + some(depth + 1)
                if begin.startswith("if") and rng.random() < 0.3:
                    out += "{%" + rng.choice(signs) + " else " + rng.choice(signs) + "%}" + some(depth + 1)
                out += "{%" + rng.choice(signs) + f" {end} " + rng.choice(signs) + "%}"
            else:
                out += rng.choice(pieces)
        return out

    return [some(0) + rng.choice(["", "{{ w }}", "\n", "{{ q }}\n\n"]) for _ in range(count)]


def requests(arguments):
    for name, text in whole_templates(arguments.templates).items():
        for turns, more, prompt in itertools.product(TURNS, MORE, (True, False)):
            yield name, {"template": text, "messages": turns, "more": more, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
    small = ["{{ " + e + " }}" for e in "|".join(EXPRESSIONS.strip().split("\n")).replace("|", "\x00").split("\x00")]
    # A filter's bar looks like the separator: pieces that do not parse alone are joined with what stands before them too.
    joined = ["{{ " + a[3:-3] + "|" + b[3:-3] + " }}" for a, b in zip(small, small[1:])]
    triple = ["{{ " + a[3:-3] + "|" + b[3:-3] + "|" + c[3:-3] + " }}" for a, b, c in zip(small, small[1:], small[2:])]
    for text in small + joined + triple + STATEMENTS + random_templates(arguments.random):
        yield text, {"template": text, "messages": TURNS[1], "more": VALUES, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": ""}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--random", type=int, default=3000)
    parser.add_argument("--templates", nargs="*", type=pathlib.Path, default=[])
    arguments = parser.parse_args()
    try:
        import jinja2  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as missing:
        venv_python.enter(missing)
    env = environment()
    cases = [(name, request, expected(env, request)) for name, request in requests(arguments)]
    lines = "".join(json.dumps({**request, "now": NOW}) + "\n" for _, request, _ in cases)
    done = subprocess.run([arguments.tool], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(cases), f"{len(answers)} answers for {len(cases)} cases"
    wrong, refused, errors, shown = 0, {}, 0, {}
    for (name, request, want), got in zip(cases, answers):
        errors += "error" in want
        if want.get("text") == got.get("text") or ITERATOR.search(want.get("text", "")):
            continue
        if "text" in want and got.get("kind") == "unsupported":
            refused.setdefault(got["error"].split(": ", 1)[-1], name)
            continue
        wrong += 1
        shown[name] = shown.get(name, 0) + 1
        if shown[name] <= 2 and len(shown) <= 30:
            print(f"DIFFERENT {name!r} {json.dumps(request['messages'])[:80] if name.endswith('jinja') else ''}\n  jinja {want}\n  ours  {got}")
    for what, name in refused.items():
        print(f"refused by name: {what}   ({name[:60]!r})")
    print(f"{len(cases)} renderings, {errors} of them errors of Jinja, {len(refused)} kinds refused by name, {wrong} different")
    return 1 if check_transformers(cases) + wrong else 0


if __name__ == "__main__":
    sys.exit(main())

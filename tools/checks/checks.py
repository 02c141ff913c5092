#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repository checks that need no compiler: include layers, sizes of files and functions, licence lines, absolute paths,
whitespace, unkeyed random numbers, dtype literals, tests that the option tables and the tables of features promise.

    checks.py [--root FOLDER] [NAME ...]     all checks by default; exit code 1 and a line each for what is wrong
"""
import argparse
import fnmatch
import os
import re
import subprocess
import sys

SOURCE = (".h", ".cc", ".cu", ".cuh", ".inc")
LICENCED = SOURCE + (".py", ".sh", ".cmake")
WALL = {".cu": 900}
DEFAULT_WALL = 600
PROSE_COLUMNS = 120
# As clang-tidy's, which sees neither CUDA sources nor what a change left alone.
FUNCTION_LINES = 70
# Where the file's own format has no comment, or a tool wrote it.
NO_LICENCE = re.compile(r"(^|/)(testdata|golden)/|\.(json|jsonl|txt|md|svg|bin|idx|npy|safetensors)$|(^|/)(LICENSE|\.clang-.*|\.gitignore)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
# A path of somebody's machine.
ABSOLUTE = re.compile(r"(?<![\w.$}/])/(work|home|root|Users|mnt)/[\w.]")
# Library functions that draw from a generator instead of a key.
RANDOM = re.compile(
    r"\b(?:at|torch)::(?:rand\w*|normal|bernoulli|multinomial|poisson|binomial|\w*dropout\w*|manual_seed|Generator)\b"
    r"|(?:\.|->)(?:normal|uniform|random|bernoulli|exponential|geometric|cauchy|log_normal)_\(|(?:\.|->)(?:bernoulli|multinomial)\("
    r"|#include <ATen/ops/(?:rand\w*|normal|bernoulli|multinomial|poisson|binomial|\w*dropout\w*)\.h>")
# Integer dtypes are no choice of precision.
DTYPE = re.compile(r"\b(?:(?:DType|ScalarType)::|(?:at|c10|torch)::k)(?:Float|Double|Half|BFloat16|Float8_\w+|Float4_\w+)\b")
DTYPE_ALLOWED = "tools/checks/dtype_literals.txt"
# `.test = "program Suite.Name; program Suite.Name"` of an option's row, split over several literals if long.
PROMISE = re.compile(r'\.test\s*=\s*((?:"[^"]*"\s*)+)')
# A test after a public report, "Megatron-LM#62"; what follows the number tells several of one report apart.
CASE = re.compile(r"Cases\.[A-Za-z0-9]+_\d+(?:_\w+)?")
# Tables of features: what works, and behind it programs, filters, targets and files that show it.
FEATURE_PAGES = ("README.md", "docs/features.md")
FEATURE_TABLE = "| feature | test |"
# What a CMakeLists.txt makes a CTest entry of; `${...}` in it stands for any word.
ENTRY = re.compile(r"(?:add_test\(NAME|pentatron_\w*test\()\s*([\w${}]+)")
TEST = re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def is_test(name):
    return name.startswith("tests/") or bool(re.search(r"_test[._]|/testing|/test_", name))


def code_lines(root, name):
    """Number and text of each line, comments left out."""
    for number, line in enumerate(read(root, name).splitlines(), 1):
        yield number, re.sub(r"//.*", "", line)


def tracked(root):
    if os.path.exists(os.path.join(root, ".git")):
        out = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, text=True, check=True).stdout
        return sorted(f for f in set(out.split("\n")) if f and os.path.isfile(os.path.join(root, f)))
    return sorted(os.path.relpath(os.path.join(d, f), root) for d, _, fs in os.walk(root) for f in fs)


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def parse_layers(text):
    """module -> (modules it may include with what those include, modules that are denied)"""
    allowed, denied = {}, {}
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        module, _, rest = line.partition(":")
        words = rest.split()
        denied[module] = {w[1:] for w in words if w.startswith("!")}
        allowed[module] = {w for w in words if not w.startswith("!")}
    def closure(module, seen):
        for other in allowed.get(module, ()):
            if other not in allowed:
                raise SystemExit(f"cmake/layers.txt: {module} names the unknown module {other}")
            if other not in seen:
                seen.add(other)
                closure(other, seen)
        return seen
    return {module: closure(module, set()) - denied[module] for module in allowed}


def may_see_autograd(name, module, test):
    return test or module == "tensor" or re.match(r"pentatron/ops/(backward\.cc|graph_runner\.(h|cc))$", name)


def check_layers(root, files):
    reach = parse_layers(read(root, "cmake/layers.txt"))
    for name in files:
        match = re.match(r"pentatron/([^/]+)/", name)
        if not match or not name.endswith(SOURCE):
            continue
        module = match.group(1)
        test = is_test(name)
        if module not in reach:
            yield f"{name}: the module {module} is missing in cmake/layers.txt"
            continue
        for number, line in enumerate(read(root, name).splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            target = found.group(1)
            inner = re.match(r"pentatron/([^/]+)/", target)
            if inner and inner.group(1) != module and inner.group(1) not in reach[module]:
                # A test may build the modules it needs to stand on, except across a deny edge of its layer file line.
                if test and module not in ("transformer", "models"):
                    continue
                yield f"{name}:{number}: {module} may not include {inner.group(1)} (cmake/layers.txt)"
            if re.match(r"(torch/torch\.h|ATen/ATen\.h)$", target):
                yield f"{name}:{number}: the umbrella header {target} is banned"
            if re.match(r"(ATen|torch|c10)/", target) and module == "kernels":
                yield f"{name}:{number}: kernels know no torch"
            if re.match(r"ATen/ops/", target) and module != "tensor" and not test:
                yield f"{name}:{number}: only tensor/ includes {target}"
            if re.match(r"torch/csrc/autograd/", target) and not may_see_autograd(name, module, test):
                yield f"{name}:{number}: only ops/backward.cc and ops/graph_runner include autograd headers"


def check_sizes(root, files):
    for name in files:
        extension = os.path.splitext(name)[1]
        if extension not in SOURCE + (".py",):
            continue
        lines = read(root, name).count("\n")
        wall = WALL.get(extension, DEFAULT_WALL)
        if lines > wall:
            yield f"{name}: {lines} lines, the wall is {wall}"


def long_functions(text):
    """Line and length of each body over the threshold, by the layout that clang-format gives: what ends with a `}` alone
    began at the nearest line before it with the same indentation."""
    lines = text.splitlines()
    for indent in ("", "  "):
        begin = None
        for number, line in enumerate(lines):
            if line == indent + "}" and begin is not None:
                opening = next((n for n in range(begin, number) if lines[n].endswith("{")), number)
                if number - opening - 1 > FUNCTION_LINES:
                    yield begin + 1, number - opening - 1
            if re.match(indent + r"[^\s#/]", line):
                begin = number


def check_functions(root, files):
    for name in files:
        if name.endswith(SOURCE):
            for number, length in long_functions(read(root, name)):
                yield f"{name}:{number}: a body of {length} lines, the threshold is {FUNCTION_LINES}"


def check_licence(root, files):
    for name in files:
        base = os.path.basename(name)
        if NO_LICENCE.search(name) and base != "CMakeLists.txt":
            continue
        if not (name.endswith(LICENCED) or base in ("CMakeLists.txt", "Makefile", "run")):
            continue
        head = "\n".join(read(root, name).splitlines()[:3])
        if "SPDX-License-Identifier: Apache-2.0" not in head:
            yield f"{name}: no line SPDX-License-Identifier: Apache-2.0 among the first three"


def check_paths(root, files):
    for name in files:
        if os.path.splitext(name)[1] in (".safetensors", ".bin", ".idx", ".npy", ".png") or name == "LICENSE":
            continue
        if name == "tools/checks/checks.py":
            continue
        for number, line in enumerate(read(root, name).splitlines(), 1):
            if ABSOLUTE.search(line):
                yield f"{name}:{number}: an absolute path of one machine"


def check_whitespace(root, files):
    for name in files:
        if not name.endswith(LICENCED + (".md", ".txt")) and os.path.basename(name) != "Makefile":
            continue
        if "/testdata/" in name or name == "LICENSE":
            continue
        text = read(root, name)
        if text and not text.endswith("\n"):
            yield f"{name}: no newline at the end"
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                yield f"{name}:{number}: blanks at the end of the line"
            if "\t" in line and os.path.basename(name) != "Makefile":
                yield f"{name}:{number}: a tab"
            # A fuzzer names its sources in one comment line that its build reads.
            if name.endswith(SOURCE) and len(line) > PROSE_COLUMNS + 30 and not line.startswith("// sources:"):
                yield f"{name}:{number}: {len(line)} columns"


def check_random(root, files):
    for name in files:
        if not name.endswith(SOURCE) or is_test(name):
            continue
        for number, line in code_lines(root, name):
            found = RANDOM.search(line)
            if found:
                yield f"{name}:{number}: {found.group(0)} draws unkeyed random numbers (use tensor/random.h)"


def check_dtypes(root, files):
    allowed = {}
    if DTYPE_ALLOWED in files:
        for line in read(root, DTYPE_ALLOWED).splitlines():
            if line.strip() and not line.startswith("#"):
                name, _, reason = line.partition(":")
                allowed[name.strip()] = reason.strip()
    used = set()
    for name in files:
        if not name.endswith(SOURCE) or is_test(name) or name.startswith("pentatron/tensor/"):
            continue
        for number, line in code_lines(root, name):
            found = DTYPE.search(line)
            if not found:
                continue
            used.add(name)
            if name not in allowed:
                yield f"{name}:{number}: {found.group(0)} outside the precision policy (tensor/precision.h; exceptions: {DTYPE_ALLOWED})"
    for name, reason in allowed.items():
        if name not in used:
            yield f"{DTYPE_ALLOWED}: {name} names no dtype: take the line out"
        elif not reason:
            yield f"{DTYPE_ALLOWED}: {name} without a reason"


def check_promised_tests(root, files):
    """Each named test stands in its program: module_test in the module's folder, all others under tests/."""
    modules = {m.group(1) for m in (re.match(r"pentatron/([^/]+)/", f) for f in files) if m}
    tests = {}
    for name in files:
        if not name.endswith(".cc") or not is_test(name):
            continue
        folder = re.match(r"pentatron/[^/]+/|tests/[^/]+/|", name).group(0)
        tests.setdefault(folder, set()).update(".".join(t) for t in TEST.findall(read(root, name)))

    def is_there(program, test):
        folders = [f"pentatron/{program}/"] if program in modules else [f for f in tests if f.startswith("tests/")]
        return any(test in tests.get(folder, ()) for folder in folders)

    for name in files:
        if name == "docs/public_faults.md":
            text = read(root, name)
            for row in re.finditer(r"`(\w+)_test (\w+\.\w+)`", text):
                line = text.count("\n", 0, row.start()) + 1
                if not CASE.fullmatch(row.group(2)):
                    yield f"{name}:{line}: {row.group(2)} is not named after its row (Cases.Name_Number)"
                if not is_there(*row.groups()):
                    yield f"{name}:{line}: no test {row.group(2)} in {row.group(1)}_test"
        if not re.match(r"pentatron/config/\w+_options\.cc$", name):
            continue
        text = read(root, name)
        for row in PROMISE.finditer(text):
            number = text.count("\n", 0, row.start()) + 1
            for promise in "".join(re.findall(r'"([^"]*)"', row.group(1))).split(";"):
                found = re.fullmatch(r"\s*(\w+)_test (\w+\.\w+)\s*", promise)
                if not found:
                    yield f"{name}:{number}: expected `program_test Suite.Name`, found `{promise.strip()}`"
                    continue
                program, test = found.groups()
                if not is_there(program, test):
                    yield f"{name}:{number}: no test {test} in {program}_test"


class Shown:
    """The tests of a tree, asked by the words of a table of features."""

    def __init__(self, root, files):
        self.root, self.files = root, set(files)
        self.modules = {m.group(1) for m in (re.match(r"pentatron/([^/]+)/", f) for f in files) if m}
        self.texts = {f: read(root, f) for f in files if f.endswith((".cc", ".h")) and is_test(f)}
        listed = [read(root, f) for f in files if os.path.basename(f) == "CMakeLists.txt"]
        self.entries = {e for text in listed for e in ENTRY.findall(text)}
        makefile = read(root, "Makefile") if "Makefile" in self.files else ""
        self.targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))

    def module(self, program):
        name = re.sub(r"(_gpu)?_test$", "", program)
        return name if name in self.modules and name != program else None

    def is_program(self, word):
        patterns = (re.sub(r"\$\{\w+\}", r"\\w+", entry) for entry in self.entries if not entry.startswith("$"))
        return self.module(word) is not None or any(re.fullmatch(p, word) for p in patterns)

    def holds(self, program, test):
        """Whether the program has a test that the filter `test` takes; None: any program."""
        module = self.module(program) if program else None
        folders = ["tests/"] if module is None else [f"pentatron/{module}/"] + ["tests/gpu/"] * ("_gpu_" in program)
        texts = [t for f, t in self.texts.items() if not program or f.startswith(tuple(folders))]
        # [instantiation/]Suite.Name[/parameter]; what only a run knows of a parameter's name is looked for as text.
        parts = re.fullmatch(r"(?:[\w*]+/)?([\w*]+)\.([\w*]+)(?:/([\w*]+))?", test)
        suite, name, parameter = parts.groups() if parts else ("*", "*", test)
        if name.startswith("*") and name != "*":
            name, parameter = "*", name
        literals = [w.strip("_") for w in (parameter or "").split("*") if w.strip("_")]
        is_named = any(fnmatch.fnmatchcase(s, suite) and fnmatch.fnmatchcase(n, name)
                       for text in texts for s, n in TEST.findall(text))
        return is_named and all(any(w in text for text in texts) for w in literals)

    def problem(self, words, program):
        """What is wrong with the words of one code span behind a feature, and the program that later ones mean."""
        first, *rest = words.removeprefix("ctest -R ").split()
        if first == "make":
            return (None if set(rest) <= self.targets else f"no target {' '.join(rest)} in Makefile"), program
        if "/" in first and first in self.files or f"tests/fuzz/{first}_fuzz.cc" in self.files:
            return None, program
        if self.is_program(first):
            missing = [test for test in rest if not self.holds(first, test)]
            return (f"no test {missing[0]} in {first}" if missing else None), first
        if not rest and re.search(r"[.*]", first):
            return (None if self.holds(program, first) else f"no test {first} in {program}"), program
        return f"`{words}` is no test, target or file", program


def check_features(root, files):
    """Each row of the tables of features names tests that exist."""
    shown = Shown(root, files)
    for name in FEATURE_PAGES:
        inside = False
        for number, line in enumerate(read(root, name).splitlines() if name in files else (), 1):
            inside = line == FEATURE_TABLE or (inside and line.startswith("|"))
            if not inside or line == FEATURE_TABLE or line.startswith("| ---"):
                continue
            cell = line.rstrip("| ").rsplit(" | ", 1)[-1]
            spans = re.findall(r"`([^`]+)`", cell)
            if not spans and "](" not in cell:
                yield f"{name}:{number}: a row without a test"
            program = None
            for words in spans:
                problem, program = shown.problem(words, program)
                if problem:
                    yield f"{name}:{number}: {problem}"


CHECKS = {"layers": check_layers, "sizes": check_sizes, "functions": check_functions, "licence": check_licence,
          "paths": check_paths, "whitespace": check_whitespace, "random": check_random, "dtypes": check_dtypes,
          "promised-tests": check_promised_tests, "features": check_features}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("names", nargs="*", help=" ".join(CHECKS))
    args = parser.parse_args()
    root = os.path.abspath(args.root)
    unknown = [n for n in args.names if n not in CHECKS]
    if unknown:
        raise SystemExit(f"no check named {unknown[0]}; there are: {' '.join(CHECKS)}")
    files = tracked(root)
    problems = 0
    for name in args.names or CHECKS:
        for problem in CHECKS[name](root, files):
            print(f"{name}: {problem}")
            problems += 1
    if problems:
        print(f"{problems} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each check of tools/checks passes on a clean small tree and fails on a planted fault."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(ROOT, "tools", "checks", "checks.py")
LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


class Checks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.put("cmake/layers.txt", "base:\nops: base\ncomm: base\nnn: ops comm\nmodels: nn !comm\nkernels:\n")
        self.put("pentatron/base/a.h", LICENCE + "#pragma once\n")
        self.put("pentatron/ops/b.cc", LICENCE + '#include "pentatron/base/a.h"\n')

    def tearDown(self):
        self.folder.cleanup()

    def put(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def run_check(self, name):
        result = subprocess.run([sys.executable, SCRIPT, "--root", self.folder.name, name], capture_output=True, text=True)
        return result.returncode, result.stdout

    def expect(self, name, text):
        code, output = self.run_check(name)
        self.assertEqual(code, 1, output)
        self.assertIn(text, output)

    def test_clean_tree(self):
        for name in ("layers", "sizes", "functions", "licence", "paths", "whitespace", "random", "dtypes", "promised-tests", "features"):
            self.assertEqual(self.run_check(name), (0, ""), name)

    def test_layers(self):
        self.put("pentatron/base/c.cc", LICENCE + '#include "pentatron/ops/b.h"\n')
        self.expect("layers", "base may not include ops")

    def test_deny_edge(self):
        self.put("pentatron/models/m.cc", LICENCE + '#include "pentatron/comm/group.h"\n')
        self.expect("layers", "models may not include comm")

    def test_unlisted_module(self):
        self.put("pentatron/attic/m.cc", LICENCE)
        self.expect("layers", "attic is missing")

    def test_umbrella(self):
        self.put("pentatron/ops/d.cc", LICENCE + "#include <torch/torch.h>\n")
        self.expect("layers", "banned")

    def test_kernels(self):
        self.put("pentatron/kernels/k.cu", LICENCE + "#include <ATen/core/Tensor.h>\n")
        self.expect("layers", "kernels know no torch")

    def test_sizes(self):
        self.put("pentatron/ops/long.cc", LICENCE + "\n" * 600)
        self.expect("sizes", "the wall is 600")

    def test_functions(self):
        self.put("pentatron/ops/f.cu", LICENCE + "void f(int a,\n       int b) {\n" + "  ++a;\n" * 70 + "}\n")
        # A table is no function.
        self.put("pentatron/ops/t.h", LICENCE + "constexpr int kTable[] = {\n" + "    1,\n" * 90 + "};\n")
        self.assertEqual(self.run_check("functions"), (0, ""))
        self.put("pentatron/ops/f.cu", LICENCE + "int x;\n\nvoid f(int a,\n       int b) {\n" + "  ++a;\n" * 71 + "}\n")
        self.expect("functions", "f.cu:4: a body of 71 lines, the threshold is 70")
        self.put("pentatron/ops/f.cu", LICENCE + "struct S {\n  void f() {\n" + "    g();\n" * 71 + "  }\n};\n")
        self.expect("functions", "f.cu:3: a body of 71 lines")

    def test_licence(self):
        for name in ("pentatron/ops/e.cc", "pentatron/ops/e.inc"):
            self.put(name, "int x;\n")
            self.expect("licence", name + ": no line SPDX")
            self.put(name, LICENCE + "int x;\n")

    def test_paths(self):
        self.put("tools/x.sh", "# SPDX-License-Identifier: Apache-2.0\ncd " + "/ho" + "me/somebody/x\n")
        self.expect("paths", "absolute path")

    def test_whitespace(self):
        self.put("pentatron/ops/f.cc", LICENCE + "int x; \n")
        self.expect("whitespace", "blanks")

    def test_random(self):
        for number, line in enumerate(("Tensor t = at::randn({2});", "t.normal_(0, 1);", "t->uniform_();", "t = x.bernoulli(0.5);",
                                       "y = at::native_dropout(x, 0.1);", "#include <ATen/ops/rand.h>")):
            self.put("pentatron/ops/r.cc", LICENCE + "// at::rand in a comment is none\n" + line + "\n")
            self.expect("random", "pentatron/ops/r.cc:3: ")
        self.put("pentatron/ops/r.cc", LICENCE + "int r = hidden_dropout(x, randomize);\n")
        self.put("pentatron/ops/r_test.cc", LICENCE + "Tensor t = at::randn({2});\n")
        self.assertEqual(self.run_check("random"), (0, ""))

    def test_dtypes(self):
        self.put("pentatron/ops/t.cc", LICENCE + "auto t = x.to(DType::BFloat16);\n")
        self.expect("dtypes", "pentatron/ops/t.cc:2: DType::BFloat16")
        self.put("pentatron/ops/t.cc", LICENCE + "auto t = x.to(at::kFloat);\n")
        self.expect("dtypes", "at::kFloat")
        allowed = "tools/checks/dtype_literals.txt"
        self.put(allowed, "pentatron/ops/t.cc: a reason\n")
        self.put("pentatron/ops/i.cc", LICENCE + "auto t = x.to(DType::Long);\n")
        self.put("pentatron/ops/t_test.cc", LICENCE + "auto t = x.to(DType::Double);\n")
        self.put("pentatron/tensor/t.cc", LICENCE + "auto t = x.to(DType::Double);\n")
        self.assertEqual(self.run_check("dtypes"), (0, ""))
        self.put(allowed, "pentatron/ops/t.cc:\n")
        self.expect("dtypes", "without a reason")
        self.put(allowed, "pentatron/ops/t.cc: a reason\npentatron/ops/b.cc: gone\n")
        self.expect("dtypes", "b.cc names no dtype")

    def test_promised_tests(self):
        row = '     .test = "base_test Errors.HaveKinds; functional_test "\n             "Options.Seed",\n'
        self.put("pentatron/config/model_options.cc", LICENCE + row)
        self.put("pentatron/base/a_test.cc", LICENCE + "TEST(Errors, HaveKinds) {}\n")
        self.expect("promised-tests", "model_options.cc:2: no test Options.Seed in functional_test")
        self.put("tests/functional/a_test.cc", LICENCE + "TEST_F(Options, Seed) {}\n")
        self.assertEqual(self.run_check("promised-tests"), (0, ""))
        # The right name in the wrong program.
        self.put("pentatron/base/a_test.cc", LICENCE + "TEST(Errors, OtherName) {}\n")
        self.put("tests/functional/b_test.cc", LICENCE + "TEST(Errors, HaveKinds) {}\n")
        self.expect("promised-tests", "no test Errors.HaveKinds in base_test")
        self.put("pentatron/config/model_options.cc", LICENCE + '.test = "some words"\n')
        self.expect("promised-tests", "expected `program_test Suite.Name`")

    def test_public_faults(self):
        self.put("pentatron/base/a_test.cc", LICENCE + "TEST(Cases, Name_62) {}\nTEST(Faults, Name62) {}\n")
        table = "docs/public_faults.md"
        self.put(table, "| Name#62 | what | `base_test Cases.Name_62` |\n")
        self.assertEqual(self.run_check("promised-tests"), (0, ""))
        self.put(table, "| Name#62 | what | `base_test Cases.Name_63` |\n")
        self.expect("promised-tests", "public_faults.md:1: no test Cases.Name_63 in base_test")
        self.put(table, "| Name#62 | what | `base_test Faults.Name62` |\n")
        self.expect("promised-tests", "public_faults.md:1: Faults.Name62 is not named after its row")

    def test_features(self):
        self.put("pentatron/base/a_test.cc", LICENCE + "TEST(Errors, HaveKinds) {}\nTEST_P(Layouts, Agree) {}\n"
                 'const char* kNames[] = {"Recompute"};\n')
        self.put("tests/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\nadd_test(NAME quickstart)\n"
                 "add_test(NAME launchers_${part})\nadd_test(NAME ${name})\n")
        self.put("Makefile", "# SPDX-License-Identifier: Apache-2.0\ntest:\n")
        head = "| feature | test |\n| --- | --- |\n"
        right = ("`base_test Errors.*`, `*/Layouts.Agree/Recompute_*`", "`quickstart`, `launchers_mpirun`", "`make test`",
                 "`Cases.*` in the programs of [the list](list.md)", "`ctest -R quickstart`", "`pentatron/base/a_test.cc`")
        self.put("pentatron/ops/b_test.cc", LICENCE + "TEST(Cases, Name_1) {}\n")
        self.put("README.md", "| other | table |\n| --- | --- |\n| x | `gone_test` |\n\n"
                 + head + "".join(f"| what works | {cell} |\n" for cell in right))
        self.assertEqual(self.run_check("features"), (0, ""))
        wrong = {"`base_test Errors.Gone`": "no test Errors.Gone in base_test", "`base_test`, `Gone.*`": "no test Gone.* in base_test",
                 "`ops_test Errors.*`": "no test Errors.* in ops_test", "`gone_test`": "`gone_test` is no test, target or file",
                 "`base_test */Layouts.Agree/Gone_*`": "no test */Layouts.Agree/Gone_* in base_test",
                 "`make gone`": "no target gone in Makefile", "by hand": "a row without a test"}
        for cell, problem in wrong.items():
            self.put("docs/features.md", head + f"| `--option` of a feature | {cell} |\n")
            self.expect("features", "docs/features.md:3: " + problem)


class RunPaths(unittest.TestCase):
    """tools/checks/runpaths.py on small libraries linked for the purpose."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.name = os.path.join(self.folder.name, "lib", "libplain.so")
        os.makedirs(os.path.dirname(self.name))

    def tearDown(self):
        self.folder.cleanup()

    def link(self, *flags):
        subprocess.run(["cc", "-shared", "-nostdlib", "-x", "c", "-", "-o", self.name, *flags], input="int one;", text=True, check=True)

    def run_script(self):
        result = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "checks", "runpaths.py"), self.folder.name],
                                capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def test_a1_sound_paths(self):
        for flags in ((), ("-Wl,-rpath,$ORIGIN:$ORIGIN/../lib:${ORIGIN}:/usr/lib",)):
            self.link(*flags)
            code, output = self.run_script()
            self.assertEqual(code, 0, output)
            self.assertIn("1 files", output)

    def test_a1_empty_and_relative_entries(self):
        for paths, what in (("$ORIGIN:", "an empty entry"), ("$ORIGIN::/usr/lib", "an empty entry"), (":/usr/lib", "an empty entry"),
                            (".", "relative entry '.'"), ("/usr/lib:lib", "relative entry 'lib'"), ("$ORIGINAL/x", "relative entry"),
                            ("$LIB/x", "relative entry")):
            for kind in ("--enable-new-dtags", "--disable-new-dtags"):
                self.link("-Wl,-rpath," + paths, "-Wl," + kind)
                code, output = self.run_script()
                self.assertEqual(code, 1, f"{paths}: {output}")
                self.assertIn(what, output)
                self.assertIn("RUNPATH" if kind.startswith("--en") else "RPATH", output)

    def test_a1_nothing_built(self):
        code, output = self.run_script()
        self.assertEqual(code, 2, output)
        self.assertIn("no ELF file", output)


class RunScript(unittest.TestCase):
    """tools/checks/run.sh in a git tree of its own: a clean first commit, then a change."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.realpath(self.folder.name)
        for name in ("tools/checks/run.sh", "tools/checks/checks.py", "tools/checks/tidy_database.py", "tools/docs/reflow.py",
                     ".clang-format", ".clang-tidy"):
            os.makedirs(os.path.dirname(os.path.join(self.root, name)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, name), os.path.join(self.root, name))
        self.put("cmake/layers.txt", "base:\n")
        self.put(".gitignore", "/build/\n")
        self.put("pentatron/base/clean.cc", LICENCE + "int three() { return 3; }\n")
        self.git("init", "-q")
        self.commit()

    def tearDown(self):
        self.folder.cleanup()

    def put(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=check", "-c", "user.email=check@localhost", "-C", self.root, *words], check=True,
                       capture_output=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"})

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def configure(self, names):
        self.put("build/release/compile_commands.json", json.dumps(
            [{"directory": self.root, "file": name, "command": f"g++ -std=c++20 -c {name}"} for name in names]))

    def run_script(self, **environment):
        plain = {k: v for k, v in os.environ.items() if k not in ("TIDY", "TIDY_MOST", "BASE")}
        result = subprocess.run([os.path.join(self.root, "tools/checks/run.sh")], capture_output=True, text=True,
                                env={**plain, **environment})
        return result.returncode, result.stdout + result.stderr

    def test_long_prose(self):
        self.put("docs/page.md", "words " * 18 + "fit\n\n| " + "cell " * 40 + "|\n")
        self.commit()
        self.assertEqual(self.run_script(TIDY="none")[0], 0)
        self.put("docs/page.md", "words " * 20 + "too many\n")
        code, output = self.run_script(TIDY="none")
        self.assertEqual(code, 1, output)
        self.assertIn("docs/page.md\nprose: lines over 120 columns", output)

    def change(self, text, name="pentatron/base/changed.cc"):
        self.put(name, LICENCE + text)
        self.configure([name])
        self.commit()

    def test_clean_change(self):
        self.change("int four() { return 4; }\n")
        code, output = self.run_script()
        self.assertEqual(code, 0, output)
        self.assertIn("all good (2 sources, 1 of them tidied)", output)

    def test_format_fault(self):
        self.change("int  four( ) { return 4; }\n")
        code, output = self.run_script(TIDY="none")
        self.assertEqual(code, 1, output)
        self.assertIn("format: run clang-format", output)
        self.assertNotIn("all good", output)

    def test_tidy_naming_fault(self):
        self.change("int BadName() { return 4; }\n")
        code, output = self.run_script()
        self.assertEqual(code, 1, output)
        self.assertIn("BadName", output)
        self.assertEqual(self.run_script(TIDY="none")[0], 0)

    def test_tidy_long_function(self):
        self.change("int long_function(int x) {\n" + "  x += 1;\n" * 81 + "  return x;\n}\n")
        code, output = self.run_script()
        self.assertEqual(code, 1, output)
        self.assertIn("readability-function-size", output)

    def test_fault_of_checks_py(self):
        self.put("pentatron/base/bare.cc", "int four() { return 4; }\n")
        code, output = self.run_script(TIDY="none")
        self.assertEqual(code, 1, output)
        self.assertIn("licence: pentatron/base/bare.cc", output)

    def test_what_is_left_out_is_named(self):
        names = [f"pentatron/base/c{i}.cc" for i in range(4)]
        for i, name in enumerate(names):
            self.put(name, LICENCE + f"int number_{i}() {{ return {i}; }}\n")
        self.configure(names[:3])
        self.commit()
        code, output = self.run_script(TIDY_MOST="1")
        self.assertEqual(code, 0, output)
        self.assertIn("left out beyond TIDY_MOST=1, 2 of 3 files: pentatron/base/c0.cc pentatron/base/c1.cc\n", output)
        self.assertIn("left out, not in build/release/compile_commands.json: pentatron/base/c3.cc\n", output)
        self.assertIn("1 of them tidied", output)

    def test_not_configured(self):
        self.change("int four() { return 4; }\n")
        shutil.rmtree(os.path.join(self.root, "build"))
        code, output = self.run_script()
        self.assertEqual(code, 1, output)
        self.assertIn("configure first", output)


if __name__ == "__main__":
    unittest.main()

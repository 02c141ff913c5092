#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each check of tools/checks/checks.py passes on a clean small tree and fails on a planted fault."""
import os
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
        for name in ("layers", "sizes", "licence", "paths", "whitespace"):
            self.assertEqual(self.run_check(name), (0, ""), name)

    def test_layers(self):
        self.put("pentatron/base/c.cc", LICENCE + '#include "pentatron/ops/b.h"\n')
        self.expect("layers", "base may not include ops")

    def test_deny_edge(self):
        self.put("pentatron/models/m.cc", LICENCE + '#include "pentatron/comm/group.h"\n')
        self.expect("layers", "models may not include comm")

    def test_unlisted_room(self):
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

    def test_licence(self):
        self.put("pentatron/ops/e.cc", "int x;\n")
        self.expect("licence", "SPDX")

    def test_paths(self):
        self.put("tools/x.sh", "# SPDX-License-Identifier: Apache-2.0\ncd " + "/ho" + "me/somebody/x\n")
        self.expect("paths", "absolute path")

    def test_whitespace(self):
        self.put("pentatron/ops/f.cc", LICENCE + "int x; \n")
        self.expect("whitespace", "blanks")

    def test_format(self):
        path = os.path.join(self.folder.name, "g.cc")
        self.put("g.cc", LICENCE + "int  x ;\n")
        result = subprocess.run(["clang-format", f"--style=file:{os.path.join(ROOT, '.clang-format')}", "--dry-run", "--Werror",
                                 path], capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0)

    def test_tidy_naming(self):
        self.put("h.cc", LICENCE + "int BadName() { return 0; }\n")
        path = os.path.join(self.folder.name, "h.cc")
        result = subprocess.run(["clang-tidy", f"--config-file={os.path.join(ROOT, '.clang-tidy')}", "--warnings-as-errors=*",
                                 "--quiet", path, "--", "-std=c++20"], capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("BadName", result.stdout)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every `sh` block of docs/*.md (and examples in README.md that are marked so), page by page, in an empty folder with the
program in PATH; a block fails with its first failing command. Links between the pages must lead somewhere.
  docs_test.py PROGRAM [PAGE ...]
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
TIMEOUT_S = 120


def run_page(page, program):
    failures = 0
    text = page.read_text()
    for target in LINK.findall(text):
        if not (page.parent / target).exists():
            print(f"{page.name}: the link {target} leads nowhere")
            failures += 1
    blocks = list(BLOCK.finditer(text))
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "bin").mkdir()
        (pathlib.Path(folder) / "bin" / "pentatron").symlink_to(program)
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        for block in blocks:
            line = text.count("\n", 0, block.start()) + 1
            begin = time.monotonic()
            try:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.group(1)], cwd=work, env=environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S)
                code, output = done.returncode, done.stdout
            except subprocess.TimeoutExpired as late:
                code, output = f"no end after {TIMEOUT_S} s", (late.stdout or b"").decode(errors="replace")
            if code != 0:
                failures += 1
                print(f"{page.name}:{line}: ended with {code}\n{block.group(1)}{output}")
            else:
                print(f"{page.name}:{line}: {time.monotonic() - begin:.1f} s")
    return failures, len(blocks)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    pages = [ROOT / name for name in sys.argv[2:]] or sorted((ROOT / "docs").glob("*.md"))
    failures = blocks = 0
    for page in pages:
        failed, count = run_page(page, program)
        failures += failed
        blocks += count
    print(f"{blocks} blocks in {len(pages)} pages, {failures} failures")
    if blocks == 0:
        sys.exit("no block was found")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

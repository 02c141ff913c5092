#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The RUNPATH and RPATH of every ELF file in the folders: no entry may be empty or relative, because the loader reads such an
entry from the current folder and would run a library that lies there.

    runpaths.py FOLDER ...     exit code 1 and a line each for what is wrong; 2 when a folder holds no ELF file
"""
import os
import re
import subprocess
import sys

ENTRY = re.compile(r"\((RUNPATH|RPATH)\)\s+Library (?:runpath|rpath): \[(.*)\]$", re.MULTILINE)
ABSOLUTE = re.compile(r"(/|(\$ORIGIN|\$\{ORIGIN\})(/|$))")


def is_elf(path):
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def elf_files(folder):
    for place, _, names in sorted(os.walk(folder)):
        for path in sorted(os.path.join(place, name) for name in names):
            if is_elf(path):
                yield path


def problems_of(path):
    """What is wrong with one file, a text each."""
    result = subprocess.run(["readelf", "-d", "-W", path], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if result.returncode != 0:
        yield f"readelf cannot read it: {result.stderr.strip()}"
        return
    for kind, value in ENTRY.findall(result.stdout):
        for entry in value.split(":"):
            if not ABSOLUTE.match(entry):
                what = f"the relative entry '{entry}'" if entry else "an empty entry"
                yield f"{kind} [{value}] has {what}: the loader would search the current folder"


def main(folders):
    if not folders:
        sys.exit(__doc__.strip())
    checked = problems = 0
    for folder in folders:
        files = list(elf_files(folder))
        if not files:
            print(f"runpaths: no ELF file in {folder}: build first", file=sys.stderr)
            return 2
        checked += len(files)
        for path in files:
            for problem in problems_of(path):
                print(f"runpaths: {path}: {problem}")
                problems += 1
    if problems:
        print(f"{problems} problems", file=sys.stderr)
        return 1
    print(f"runpaths: {checked} files, all entries absolute")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

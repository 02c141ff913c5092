#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills paragraphs and list items of Markdown that have a line beyond 120 columns; tables, code, headings and HTML stay as they are.

  tools/docs/reflow.py [--check] [FILE ...]     (no file: all that git tracks, but what a program writes)

--check changes nothing and ends with 1 where a file would change.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import textwrap

COLUMNS = 120
WRITTEN = ("docs/megatron_options.md",)  # by `pentatron options --markdown`
ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)\s+")


def is_fixed(line):
    return not line.strip() or line.lstrip().startswith(("#", "|", "<", "```"))


def fill(block):
    """The lines of one paragraph or list item, filled. Code spans and addresses do not break."""
    item = ITEM.match(block[0])
    lead = item.group(0) if item else re.match(r"\s*", block[0]).group(0)
    text = " ".join([block[0][len(lead):].strip(), *(line.strip() for line in block[1:])])
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", lambda span: span.group(0).replace(" ", "\0"), text)
    lines = textwrap.wrap(text, COLUMNS, initial_indent=lead, subsequent_indent=" " * len(lead),
                          break_long_words=False, break_on_hyphens=False)
    # A line that would begin a list keeps its words together with those before.
    if any(ITEM.match(line) for line in lines[1:]):
        return block
    return [line.replace("\0", " ") for line in lines]


def reflow(text):
    lines = text.split("\n")
    out = []
    at = 0
    code = False
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("```"):
            code = not code
        item = ITEM.match(line)
        if code or is_fixed(line) or (not item and line.startswith("    ")):
            out.append(line)
            at += 1
            continue
        block = [line]
        at += 1
        while at < len(lines) and not is_fixed(lines[at]) and not ITEM.match(lines[at]):
            block.append(lines[at])
            at += 1
        has_breaks = any(line.endswith("  ") for line in block)
        fits = all(len(line) <= COLUMNS for line in block)
        out += block if fits or has_breaks else fill(block)
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    tracked = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split()
    changed = 0
    for path in options.files or [pathlib.Path(name) for name in tracked if name not in WRITTEN]:
        before = path.read_text()
        after = reflow(before)
        if after == before:
            continue
        if before.split() != after.split():
            sys.exit(f"{path}: other words than before: a fault of this tool")
        changed += 1
        print(path)
        if not options.check:
            path.write_text(after)
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

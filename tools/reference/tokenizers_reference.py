#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our byte-level BPE (trainer, encoder, word split) and WordPiece trainer with the `tokenizers` wheel.

Usage: tokenizers_reference.py --tool PATH/bpe_reference_tool [--text FILE --vocab-size N]

Without --text: generated texts (seeded). The wheel is taken from PENTATRON_REFERENCE_PYTHON, by
default .deps/reference-venv/bin/python; without it the comparison fails, it is never skipped.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[2]
REENTERED = "PENTATRON_REFERENCE_REENTERED"

try:
    import tokenizers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    python = os.environ.get("PENTATRON_REFERENCE_PYTHON",
                            str(ROOT / ".deps" / "reference-venv" / "bin" / "python"))
    if os.environ.get(REENTERED) or not os.access(python, os.X_OK):
        sys.exit(f"tokenizers_reference: no Python with the `tokenizers` wheel at {python}.\n"
                 "Make one, or name it in PENTATRON_REFERENCE_PYTHON:\n"
                 "  python3 -m venv .deps/reference-venv\n"
                 "  .deps/reference-venv/bin/pip install -r tools/reference/requirements.txt")
    os.execve(python, [python, *sys.argv], {**os.environ, REENTERED: "1"})

EOD = "<|endoftext|>"
SPLITTER = pre_tokenizers.ByteLevel(add_prefix_space=False)


def run_tool(tool, arguments, texts=None):
    stdin = None if texts is None else json.dumps(texts).encode()
    done = subprocess.run([tool, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"tokenizers_reference: {tool} {arguments[0]} failed ({done.returncode})")
    return json.loads(done.stdout) if texts is not None else None


def reference_tokenizer(files, vocab_size, min_frequency, whole_file):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITTER
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=[EOD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    if whole_file:
        texts = [pathlib.Path(f).read_bytes().decode() for f in files]
        tokenizer.train_from_iterator(texts, trainer)
    else:
        tokenizer.train([str(f) for f in files], trainer)
    return tokenizer


def word_text(rng, num_words, vocabulary=4000):
    """Zipf-like words with the marks, line ends and contractions that GPT-2's pattern looks for."""
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(1, 9)))
             for _ in range(vocabulary)]
    words += ["größe", "naïve", "日本語", "мир", "नमस्ते", "१२३", "½", "Ⅷ", "e\u0301te\u0301", "🙂", "👍🏽"]
    marks = [" "] * 30 + ["  ", "\n", "\n\n", "\t", ", ", ". ", "'s ", "'ll ", "n't ", "! ", "\u00a0", "\u3000 ",
             " -- ", "\r\n", "'", "\u2019", " 1", " 2024 ", "_"]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    chosen = rng.choices(words, weights, k=num_words)
    return "".join(w + rng.choice(marks) for w in chosen)


def run_text(rng):
    """Few letters and long runs: many ties and overlapping pairs."""
    return " ".join("".join(rng.choice("ab") for _ in range(rng.randint(1, 25))) if rng.random() < .5
                    else rng.choice("ab ") * rng.randint(1, 40) for _ in range(200))


def hostile_texts(rng, known):
    """Short texts of random known code points and of pieces that the pattern treats apart."""
    pieces = ["'s", "'T", "'ll", "'LL", "'re", "'ve", "'d", "'m", "'", "''", " ", "  ", "\n", "\t", "\u00a0",
              "\u2028", "\x85", "\x1c", "\u200b", "\ufeff", "a", "é", "e\u0301", "1", "²", "Ⅷ", "१", "!", "_", "🙂", EOD]
    texts = ["", *pieces]
    for _ in range(4000):
        texts.append("".join(rng.choice(pieces) if rng.random() < .6 else chr(rng.choice(known))
                             for _ in range(rng.randint(1, 24))))
    texts += [c * n for c in (" ", "a", "1", "!", "\u0301", "\n") for n in (63, 64, 65, 66, 1000)]
    return texts


def compare(tool, name, files, vocab_size, min_frequency, whole_file, texts):
    reference = reference_tokenizer(files, vocab_size, min_frequency, whole_file)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "theirs")
        ours.mkdir()
        theirs.mkdir()
        run_tool(tool, ["train", vocab_size, min_frequency, ours, "file" if whole_file else "line",
                        *files])
        reference.model.save(str(theirs))
        our_merges = (ours / "merges.txt").read_text().splitlines()
        their_merges = (theirs / "merges.txt").read_text().splitlines()
        if our_merges != their_merges:
            at = next((i for i, pair in enumerate(zip(our_merges, their_merges)) if pair[0] != pair[1]),
                      min(len(our_merges), len(their_merges)))
            sys.exit(f"{name}: merges differ from line {at + 1}: ours {our_merges[at:at + 3]}, "
                     f"the wheel's {their_merges[at:at + 3]} ({len(our_merges)} and {len(their_merges)})")
        if (json.loads((ours / "vocab.json").read_text())
                != json.loads((theirs / "vocab.json").read_text())):
            sys.exit(f"{name}: vocab.json differs")
        # The special token inside text is plain text: our encoder's default, and the bare model's.
        bare = Tokenizer(models.BPE.from_file(str(theirs / "vocab.json"), str(theirs / "merges.txt")))
        bare.pre_tokenizer = SPLITTER
        their_ids = [e.ids for e in bare.encode_batch(texts)]
        our_ids = run_tool(tool, ["encode", ours / "vocab.json", ours / "merges.txt"], texts)
        for text, mine, wanted in zip(texts, our_ids, their_ids, strict=True):
            if mine != wanted:
                sys.exit(f"{name}: {text!r} encodes to {mine}, the wheel says {wanted}")
    print(f"{name}: {len(our_merges) - 1} merges and {len(texts)} encodings equal")


def compare_classes(tool, known):
    """The class of every assigned code point, by how the word split treats it."""
    texts = [f"a{chr(c)}{chr(c)}1{chr(c)} {chr(c)}!{chr(c)}" for c in known]
    sizes = run_tool(tool, ["split"], texts)
    for text, mine in zip(texts, sizes, strict=True):
        wanted = [len(word) for word, _ in SPLITTER.pre_tokenize_str(text)]
        if mine != wanted:
            sys.exit(f"split of {text!r}: {mine}, the wheel says {wanted}")
    print(f"word split: {len(known)} code points (Unicode {unicodedata.unidata_version}) equal")


def compare_word_pieces(tool, rng):
    """Tokens of the WordPiece trainers. The wheel breaks ties between pairs anew in each run, so the counts are all
    different: words of two letters, each another number of times."""
    letters = "abcdefghijklmnopqrstuvwxyz\u00e9\u0436\u4e2d"
    words = [a + b for a in letters for b in letters]
    rng.shuffle(words)
    texts = [(word + " ") * (count + 2) for count, word in enumerate(words[:300])]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for vocab_size, min_frequency in ((100, 2), (180, 2), (300, 2), (1000, 2), (1000, 150)):
        reference = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        reference.normalizer = normalizers.BertNormalizer(lowercase=True)
        reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, min_frequency=min_frequency,
                                            special_tokens=special, show_progress=False)
        reference.train_from_iterator(texts, trainer)
        ours = run_tool(tool, ["word_pieces", vocab_size, min_frequency], texts)
        theirs = set(reference.get_vocab())
        if len(ours) != len(set(ours)) or set(ours) != theirs:
            sys.exit(f"word pieces of {vocab_size}: only ours {sorted(set(ours) - theirs)[:10]}, "
                     f"only the wheel's {sorted(theirs - set(ours))[:10]}")
    print("word pieces: equal")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--vocab-size", type=int, default=2000)
    arguments = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}")
    rng = random.Random(20240229)
    # Newer Unicode releases than this Python's may class its unassigned code points differently.
    known = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    texts = hostile_texts(rng, known)
    if arguments.text:
        files = [pathlib.Path(f) for f in arguments.text]
        texts += [f.read_bytes().decode()[:1 << 20] for f in files]
        compare(arguments.tool, "given text", files, arguments.vocab_size, 2, False, texts)
        return
    compare_classes(arguments.tool, known)
    compare_word_pieces(arguments.tool, rng)
    with tempfile.TemporaryDirectory() as folder:
        words, more = pathlib.Path(folder, "words.txt"), pathlib.Path(folder, "more.txt")
        words.write_bytes(word_text(rng, 60000).encode())
        more.write_bytes(word_text(rng, 5000).encode())
        texts += [words.read_bytes().decode()[:100000]]
        compare(arguments.tool, "two files", [words, more], arguments.vocab_size, 2, False, texts)
        compare(arguments.tool, "whole file", [words], 700, 2, True, texts)
        compare(arguments.tool, "until nothing is left", [more], 100000, 0, False, texts)
        runs = pathlib.Path(folder, "runs.txt")
        for number in range(20):
            runs.write_bytes(run_text(rng).encode())
            compare(arguments.tool, f"runs {number}", [runs], 300 + 20 * number, number % 4, True,
                    texts[:300])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Held-out loss in bits per byte beside the corpus' unigram entropy and the limit, and the losses of one and two ranks side by side. Exit code 1 when the
loss is above the limit or the ranks disagree."""
import argparse
import collections
import json
import math
import re
import struct
import sys

RANK_TOLERANCE = 1e-5  # fp32 sums in another order


def lengths_of(prefix):
    with open(prefix + ".idx", "rb") as f:
        head = f.read(34)
        sequences = struct.unpack("<Q", head[18:26])[0]
        return struct.unpack(f"<{sequences}i", f.read(4 * sequences))


def validation_range(split, count):
    numbers = [float(x) for x in re.findall(r"[.0-9]+", split)]
    total = sum(numbers)
    first, last = numbers[0] / total, (numbers[0] + numbers[1]) / total
    return round(first * count), round(last * count)


def losses(path, kind):
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.endswith("\n")]
    return [(r["iteration"], r["lm_loss"]) for r in rows if r["kind"] == kind]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("metrics", "corpus", "prefix", "split", "one-rank", "two-ranks"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--limit", type=float, required=True)
    args = parser.parse_args()

    with open(args.corpus, encoding="utf-8") as f:
        documents = [json.loads(line)["text"].encode() for line in f]
    lengths = lengths_of(args.prefix)
    if len(lengths) != len(documents):
        raise SystemExit(f"error: {len(documents)} documents in {args.corpus}, {len(lengths)} in {args.prefix}")
    begin, end = validation_range(args.split, len(documents))
    tokens, size = sum(lengths[begin:end]), sum(len(d) for d in documents[begin:end])
    iteration, loss = losses(args.metrics, "validation")[-1]
    bits = loss / math.log(2) * tokens / size

    counts = collections.Counter()
    for document in documents:
        counts.update(document)
    total = sum(counts.values())
    entropy = -sum(n / total * math.log2(n / total) for n in counts.values())
    print(f"held-out loss at iteration {iteration}: {loss:.4f} nats a token = {bits:.3f} bits a byte")
    print(f"unigram entropy of the corpus: {entropy:.3f} bits a byte; limit: {args.limit:.3f}")

    one, two = losses(args.one_rank, "train"), losses(args.two_ranks, "train")
    worst = max(abs(a - b) / abs(a) for (_, a), (_, b) in zip(one, two, strict=True))
    for (step, a), (_, b) in zip(one, two):
        print(f"  step {step}: loss {a:.7f} on one rank, {b:.7f} on two")
    print(f"largest relative difference {worst:.1e} (allowed {RANK_TOLERANCE:.0e}: fp32 sums in another order)")
    bad = []
    if not bits <= args.limit:
        bad.append("the held-out loss is above its limit")
    if not (one and worst <= RANK_TOLERANCE):
        bad.append("one and two ranks disagree")
    for problem in bad:
        print("error: " + problem, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

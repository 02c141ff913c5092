#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What dynamic context parallelism (--hybrid-context-parallel) gains on conversations of unlike lengths, most of them
short: interleaved runs of one model, over the same conversations, on two or more ranks.

  bench/train/dynamic_context.py --pentatron build/release/bin/pentatron --ranks 2 --size gpu [--rounds 3] [--json FILE]
  bench/train/dynamic_context.py --pentatron build/release/bin/pentatron --ranks 2 --size cpu

dynamic: each conversation on as few ranks as hold it. static: the same packs, each shared by all ranks, as
--context-parallel-size RANKS would (--min-dynamic-context-parallel-size RANKS). padded: --context-parallel-size RANKS
itself, which fills every conversation up to --seq-length; with --padded alone, since it is far behind.
Lengths are log-normal, a byte a token. The first two steps of a run are left out. The losses must agree.
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

WARM_UP = 2
SIZES = {
    # 1.1 billion parameters in bf16; a step of about 130,000 tokens.
    "gpu": dict(model="--num-layers 16 --hidden-size 2048 --ffn-hidden-size 5632 --num-attention-heads 16 --num-query-groups 4 "
                      "--vocab-size 32000 --bf16", longest=32768, median=1024, sigma=1.2, batch=64, tolerance=2e-3),
    "cpu": dict(model="--num-layers 4 --hidden-size 128 --ffn-hidden-size 256 --num-attention-heads 4 --num-query-groups 2 "
                      "--device cpu --cpu-threads-per-rank 1", longest=2048, median=128, sigma=1.2, batch=64, tolerance=1e-4),
}


def write_tokenizer(folder):
    """A tokenizer.json of bytes: as many tokens as letters."""
    shown, vocabulary = 0x100, {}
    for byte in range(256):
        plain = 0x21 <= byte <= 0x7E or (0xA1 <= byte <= 0xFF and byte != 0xAD)
        vocabulary[chr(byte if plain else shown)] = byte
        shown += 0 if plain else 1
    names = ["</s>", "<unk>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>"]
    added = [{"id": 256 + i, "content": name, "special": True} for i, name in enumerate(names)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "post_processor": None, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')


def write_talks(path, size, count):
    rng = random.Random(11)
    with open(path, "w") as out:
        for _ in range(count):
            letters = int(min(size["longest"] - 64, max(16, rng.lognormvariate(math.log(size["median"]), size["sigma"]))))
            answer = "".join(rng.choices("abcdefgh ", k=letters))
            out.write(json.dumps({"messages": [{"role": "user", "content": "go on"},
                                               {"role": "assistant", "content": answer}]}) + "\n")


def train(a, size, folder, more):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    words = [a.pentatron, "launch", "--nproc-per-node", str(a.ranks), "pretrain_gpt", *size["model"].split(), "--swiglu",
             "--group-query-attention", "--normalization", "RMSNorm", "--position-embedding-type", "rope", "--disable-bias-linear",
             "--untie-embeddings-and-output-weights", "--attention-dropout", "0", "--hidden-dropout", "0", "--seq-length",
             str(size["longest"]), "--max-position-embeddings", str(size["longest"]), "--tokenizer-type", "SFTTokenizer",
             "--tokenizer-model", str(folder), "--sft", "--sft-tokenizer-prompt-format", "identity", "--data-path",
             str(folder / "talks.jsonl"), "--split", "100,0,0", "--micro-batch-size", "1", "--global-batch-size", str(size["batch"]),
             "--train-iters", str(a.steps), "--eval-iters", "0", "--lr", "1e-4", "--use-distributed-optimizer", "--log-interval", "1",
             "--metrics-file", str(metrics), *more]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\nended with {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-8000:]}")
    steps = [line for line in map(json.loads, open(metrics)) if line.get("kind") == "train"]
    return {"seconds": [s["seconds"] for s in steps[WARM_UP:]], "losses": [s["lm_loss"] for s in steps],
            "tokens": [s["valid_tokens"] for s in steps[WARM_UP:]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pentatron", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", choices=list(SIZES), required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--padded", action="store_true")
    parser.add_argument("--json")
    a = parser.parse_args()
    if a.steps <= WARM_UP or a.ranks < 2 or a.ranks & (a.ranks - 1):
        parser.error(f"--steps: more than the {WARM_UP} that are left out; --ranks: 2, 4, 8, ...")
    size = SIZES[a.size]
    pooled = ["--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank", str(size["longest"] // a.ranks)]
    kinds = {"dynamic": pooled, "static": [*pooled, "--min-dynamic-context-parallel-size", str(a.ranks)]}
    if a.padded:
        kinds["padded"] = ["--context-parallel-size", str(a.ranks)]
    runs = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_tokenizer(folder)
        write_talks(folder / "talks.jsonl", size, size["batch"] * (a.steps + 1))
        for round_number in range(a.rounds):
            for kind, more in kinds.items():
                runs[kind].append(train(a, size, folder, more))
            print(f"round {round_number + 1} of {a.rounds}", file=sys.stderr)
    first = runs["dynamic"][0]["losses"]
    for kind, done in runs.items():
        for run in done:
            if not all(abs(mine / his - 1) <= size["tolerance"] for mine, his in zip(run["losses"], first)):
                sys.exit(f"the losses differ: {kind} {run['losses']}, dynamic {first}")
    # The same steps of all rounds: their conversations differ from step to step.
    row = {kind: {"seconds": [min(run["seconds"][i] for run in done) for i in range(a.steps - WARM_UP)], "runs": done}
           for kind, done in runs.items()}
    for kind, r in row.items():
        r["tokens_per_s"] = sum(runs[kind][0]["tokens"]) / sum(r["seconds"])
        r["of_dynamic"] = sum(r["seconds"]) / sum(row["dynamic"]["seconds"])
        totals = [sum(run["seconds"]) for run in runs[kind]]
        print(f"{kind:8} {statistics.mean(r['seconds']) * 1e3:9.1f} ms a step, {r['tokens_per_s']:10.0f} learnt tokens/s, "
              f"{r['of_dynamic']:.3f} times as long as dynamic; rounds took {min(totals):.2f} to {max(totals):.2f} s")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed on the CPU beside PyTorch eager (bench/peers/gpt2_cpu.py): interleaved, same weights, same tokens.

  bench/train/cpu.py --pentatron build/release/bin/pentatron --python .deps/reference-venv/bin/python
                     [--workloads gpt2_b4_t64 gpt2_b1_t1024 tiny] [--rounds 3] [--steps 8]
Prints a table and, with --json FILE, every figure. Each program runs in a process of its own, round by round; the first two steps
of a process are left out. First losses must agree (1e-5), else the comparison is refused.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 2
WORKLOADS = {
    "gpt2_b4_t64": dict(layers=12, hidden=768, heads=12, vocab=50257, positions=1024, batch=4, length=64, threads=2),
    "gpt2_b1_t1024": dict(layers=12, hidden=768, heads=12, vocab=50257, positions=1024, batch=1, length=1024, threads=2),
    "tiny": dict(layers=2, hidden=64, heads=4, vocab=256, positions=64, batch=4, length=64, threads=1),
}


def prepare(program, folder, w, steps):
    """Corpus of random tokens, and a checkpoint that holds the initial weights (one step that moves nothing)."""
    rng = random.Random(7)
    need = (steps + 4) * w["batch"] * (w["length"] + 1) * 2
    with open(folder / "text.jsonl", "w") as out:
        for _ in range(need // 400 + 8):
            text = " ".join(str(rng.randrange(w["vocab"] - 1)) for _ in range(400))
            out.write(json.dumps({"text": text}) + "\n")
    run([program, "preprocess_data", "--input", folder / "text.jsonl", "--output-prefix", folder / "corpus",
         "--append-eod", *tokenizer(w)])
    run([*command(program, folder, w), "--train-iters", "1", "--lr", "1e-30", "--weight-decay", "0",
         "--save", folder / "start", "--save-interval", "1"])


def tokenizer(w):
    return ["--tokenizer-type", "NullTokenizer", "--vocab-size", str(w["vocab"] - 1)]


def command(program, folder, w):
    return [program, "pretrain_gpt", "--num-layers", w["layers"], "--hidden-size", w["hidden"],
            "--num-attention-heads", w["heads"], "--seq-length", w["length"], "--max-position-embeddings", w["positions"],
            *tokenizer(w), "--data-path", folder / "corpus_text_document", "--split", "100,0,0",
            "--micro-batch-size", w["batch"], "--global-batch-size", w["batch"], "--eval-iters", "0",
            "--lr-decay-style", "constant", "--hidden-dropout", "0", "--attention-dropout", "0", "--clip-grad", "0",
            "--cpu-threads-per-rank", w["threads"], "--log-interval", "1"]


def run(words, **environment):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(a, folder, w):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    begin = time.monotonic()
    words = [*command(a.pentatron, folder, w), "--train-iters", a.steps, "--lr", "1e-4", "--weight-decay", "0.1",
             "--adam-eps", "1e-8", "--metrics-file", metrics]
    process = subprocess.Popen([str(x) for x in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": str(w["threads"])})
    first, text = None, ""
    for line in process.stdout:
        text += line
        if first is None and "] iteration        1/" in line:
            first = time.monotonic() - begin
    if process.wait() != 0:
        sys.exit(text)
    lines = [json.loads(line) for line in open(metrics)]
    train = [line for line in lines if line["kind"] == "train"]
    return {"losses": [x["lm_loss"] for x in train], "seconds": [x["seconds"] for x in train], "start_to_first_step": first}


def pytorch(a, folder, w):
    begin = time.monotonic()
    out = run([a.python, HERE.parent / "peers" / "gpt2_cpu.py", "--checkpoint", folder / "start" / "iter_0000001",
               "--data", folder / "corpus_text_document", "--batch", w["batch"], "--steps", a.steps, "--threads",
               w["threads"]], OMP_NUM_THREADS=str(w["threads"]))
    return json.loads(out.strip().splitlines()[-1])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--pentatron", required=True)
    ap.add_argument("--python", required=True, help="a Python with torch of the same version")
    ap.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--json")
    a = ap.parse_args()
    results = {}
    for name in a.workloads:
        w = WORKLOADS[name]
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            prepare(a.pentatron, folder, w, a.steps)
            runs = {"pentatron": [], "pytorch": []}
            for round_number in range(a.rounds):
                runs["pentatron"].append(ours(a, folder, w))
                runs["pytorch"].append(pytorch(a, folder, w))
                print(f"{name}: round {round_number + 1} of {a.rounds}", file=sys.stderr)
        first = [r[0]["losses"][0] for r in runs.values()]
        if abs(first[0] / first[1] - 1) > 1e-5:
            sys.exit(f"{name}: the first losses differ: {first}")
        tokens = w["batch"] * w["length"]
        row = {"first_loss": first}
        for who, list_of_runs in runs.items():
            steps = [s for r in list_of_runs for s in r["seconds"][WARM_UP:]]
            row[who] = {"median_s": statistics.median(steps), "best_s": min(steps),
                        "tokens_per_s": tokens / statistics.median(steps),
                        "start_to_first_step_s": statistics.median(r["start_to_first_step"] for r in list_of_runs),
                        "losses": list_of_runs[0]["losses"]}
        row["ratio"] = row["pentatron"]["tokens_per_s"] / row["pytorch"]["tokens_per_s"]
        row["ratio_of_best"] = row["pytorch"]["best_s"] / row["pentatron"]["best_s"]
        results[name] = row
        for who in runs:
            r = row[who]
            print(f"{name:14} {who:10} {r['median_s']*1e3:9.1f} ms/step (best {r['best_s']*1e3:9.1f}) "
                  f"{r['tokens_per_s']:9.1f} tokens/s, start to first step {r['start_to_first_step_s']:.2f} s")
        print(f"{name:14} ratio {row['ratio']:.2f} of medians, {row['ratio_of_best']:.2f} of bests; first losses {first}")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

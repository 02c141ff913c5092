#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed on the CPU against PyTorch eager (bench/peers/gpt2_cpu.py) and llm.c (bench/peers/llmc_cpu.py):
interleaved, same weights, same tokens.

  tools/reference/setup.sh
  git clone https://github.com/karpathy/llm.c FOLDER && git -C FOLDER checkout f1e2ace
  bench/train/cpu.py --pentatron build/release/bin/pentatron --python .deps/reference-venv/bin/python [--llmc FOLDER]
                     [--workloads gpt2_b4_t64 gpt2_b1_t1024 tiny] [--rounds 3] [--steps 8]
Prints a table and, with --json FILE, every figure. Each program runs in a process of its own, round by round; the first
two steps of a process are left out. First losses must agree (1e-5), else the comparison is refused. Without --llmc that
program is left out. Part of llm.c's attention backward runs on one thread and grows with the cube of the length:
gpt2_b1_t1024 takes it long.
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
# Relative, of the first loss against ours. llm.c prints six decimals; a wrong GELU there moves tiny's by 2e-5.
TOLERANCE = 1e-5
WORKLOADS = {
    "gpt2_b4_t64": dict(layers=12, hidden=768, heads=12, vocab=50257, positions=1024, batch=4, length=64, threads=2),
    "gpt2_b1_t1024": dict(layers=12, hidden=768, heads=12, vocab=50257, positions=1024, batch=1, length=1024, threads=2),
    "tiny": dict(layers=2, hidden=64, heads=4, vocab=256, positions=64, batch=4, length=64, threads=1),
}


def prepare(program, folder, w, steps):
    """Corpus of random tokens, and a checkpoint that holds the initial weights (one step that moves nothing)."""
    rng = random.Random(7)
    tokens = [rng.randrange(w["vocab"] - 1) for _ in range((steps + 4) * w["batch"] * w["length"] + 1)]
    # One document without an end token: each sample starts at a multiple of the length. The same token stands at all
    # of them, so samples in any order make one stream, as llm.c reads it.
    for i in range(0, len(tokens), w["length"]):
        tokens[i] = tokens[0]
    (folder / "text.jsonl").write_text(json.dumps({"text": " ".join(map(str, tokens))}) + "\n")
    run([program, "preprocess_data", "--input", folder / "text.jsonl", "--output-prefix", folder / "corpus",
         *tokenizer(w)])
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
            "--cpu-threads-per-rank", w["threads"], "--device", "cpu"]


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
    # Like the others it says nothing between the first and the last step; every step is in the metrics file.
    words = [*command(a.pentatron, folder, w), "--train-iters", a.steps, "--log-interval", a.steps, "--lr", "1e-4", "--weight-decay", "0.1",
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


def peer(a, folder, w, script, *more):
    out = run([a.python, HERE.parent / "peers" / script, "--checkpoint", folder / "start" / "iter_0000001",
               "--data", folder / "corpus_text_document", "--batch", w["batch"], "--steps", a.steps, "--threads",
               w["threads"], *more], OMP_NUM_THREADS=str(w["threads"]))
    return json.loads(out.strip().splitlines()[-1])


def pytorch(a, folder, w):
    return peer(a, folder, w, "gpt2_cpu.py")


def llmc(a, folder, w):
    return peer(a, folder, w, "llmc_cpu.py", "--llmc", a.llmc, "--length", w["length"], "--work", folder / "llmc")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--pentatron", required=True)
    ap.add_argument("--python", required=True, help="a Python with torch of the same version")
    ap.add_argument("--llmc", help="a checkout of karpathy/llm.c; its program is left out without it")
    ap.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--json")
    a = ap.parse_args()
    if a.steps <= WARM_UP:
        ap.error(f"--steps: more than the {WARM_UP} that are left out")
    programs = {"pentatron": ours, "pytorch": pytorch}
    if a.llmc:
        programs["llm.c"] = llmc
    else:
        print("llm.c is left out: no --llmc FOLDER")
    results = {}
    for name in a.workloads:
        w = WORKLOADS[name]
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            prepare(a.pentatron, folder, w, a.steps)
            runs = {who: [] for who in programs}
            for round_number in range(a.rounds):
                for who, program in programs.items():
                    runs[who].append(program(a, folder, w))
                print(f"{name}: round {round_number + 1} of {a.rounds}", file=sys.stderr)
        first = {who: list_of_runs[0]["losses"][0] for who, list_of_runs in runs.items()}
        # A NaN agrees with nothing.
        if not all(abs(loss / first["pentatron"] - 1) <= TOLERANCE for loss in first.values()):
            sys.exit(f"{name}: the first losses differ: {first}")
        tokens = w["batch"] * w["length"]
        row = {"first_loss": first}
        for who, list_of_runs in runs.items():
            steps = [s for r in list_of_runs for s in r["seconds"][WARM_UP:]]
            row[who] = {"median_s": statistics.median(steps), "best_s": min(steps),
                        "tokens_per_s": tokens / statistics.median(steps),
                        "start_to_first_step_s": statistics.median(r["start_to_first_step"] for r in list_of_runs),
                        "losses": list_of_runs[0]["losses"]}
        peers = [who for who in runs if who != "pentatron"]
        row["ratio"] = {who: row["pentatron"]["tokens_per_s"] / row[who]["tokens_per_s"] for who in peers}
        row["ratio_of_best"] = {who: row[who]["best_s"] / row["pentatron"]["best_s"] for who in peers}
        pairs = {who: zip(row[who]["losses"], row["pentatron"]["losses"]) for who in peers}
        row["loss_gap"] = {who: max(abs(his / our - 1) for his, our in pairs[who]) for who in peers}
        for who in peers:
            row[who].update({key: runs[who][0][key] for key in ("compiler", "changes") if key in runs[who][0]})
        results[name] = row
        for who in runs:
            r = row[who]
            print(f"{name:14} {who:10} {r['median_s']*1e3:9.1f} ms/step (best {r['best_s']*1e3:9.1f}) "
                  f"{r['tokens_per_s']:9.1f} tokens/s, start to first step {r['start_to_first_step_s']:.2f} s")
        for who in peers:
            built = f"; built by {row[who]['compiler']}" if "compiler" in row[who] else ""
            print(f"{name:14} ratio to {who:10} {row['ratio'][who]:.2f} of medians, "
                  f"{row['ratio_of_best'][who]:.2f} of bests; losses of all steps within "
                  f"{row['loss_gap'][who]:.0e}{built}")
        print(f"{name:14} first losses {first}")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

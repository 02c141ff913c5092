#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the events of two short runs (the second resumes the first) with the `tensorboard` wheel and compares every scalar with
the metrics file and every argument with the printed ones.

    tensorboard_reference.py --program PATH     exit code 1 and a line for what is wrong
"""
import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTIONS = ("--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --mock-data "
           "--tokenizer-type NullTokenizer --vocab-size 63 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --lr-decay-style "
           "cosine --train-iters 6 --eval-iters 1 --eval-interval 2 --log-interval 1 --log-params-norm --log-throughput "
           "--log-timers-to-tensorboard --timing-log-level 2 --log-memory-to-tensorboard --log-world-size-to-tensorboard "
           "--log-validation-ppl-to-tensorboard --log-num-zeros-in-grad --tensorboard-queue-size 7 --sample-prompt 5 --sample-length 4 "
           "--save-interval 3").split()


def reference_python():
    venv = os.environ.get("PENTATRON_REFERENCE_PYTHON") or str(ROOT / ".deps/reference-venv/bin/python")
    if not os.path.exists(venv):
        sys.exit(f"{venv} is missing: run tools/reference/setup.sh")
    return venv


def run(program, folder, *more):
    words = [program, "pretrain_gpt", *OPTIONS, "--save", f"{folder}/save", "--load", f"{folder}/save", "--metrics-file",
             f"{folder}/metrics.jsonl", "--tensorboard-dir", f"{folder}/events", *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the program failed: {done.stdout}{done.stderr}")
    return done.stdout


def expect(good, what):
    if not good:
        sys.exit(f"wrong: {what}")


def compare(folder, printed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(f"{folder}/events", size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    records = [json.loads(line) for line in open(f"{folder}/metrics.jsonl", encoding="utf-8")]
    train = [r for r in records if r["kind"] == "train"]
    valid = [r for r in records if r["kind"] == "validation"]
    expect([r["iteration"] for r in train] == [1, 2, 3, 4, 5, 6], "six training records")

    def scalars(tag):
        return [(e.step, e.value) for e in events.Scalars(tag)]

    def same(tag, pairs):
        got = scalars(tag)
        expect([s for s, _ in got] == [s for s, _ in pairs], f"steps of {tag}: {got} for {pairs}")
        for (_, a), (_, b) in zip(got, pairs):
            expect(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-30), f"{tag}: {a} for {b}")

    for tag, name in {"lm loss": "lm_loss", "grad-norm": "grad_norm", "loss-scale": "loss_scale", "num-zeros": "num_zeros",
                      "params-norm": "params_norm"}.items():
        same(tag, [(r["iteration"], r[name]) for r in train])
        same(tag + " vs samples", [(r["consumed_samples"], r[name]) for r in train])
    same("learning-rate", [(r["iteration"], r["learning_rate"]) for r in train])
    same("batch-size", [(i, 4) for i in range(1, 7)])
    same("world-size", [(i, 1) for i in range(1, 7)])
    same("lm loss validation", [(r["iteration"], r["lm_loss"]) for r in valid])
    same("lm loss validation ppl", [(r["iteration"], math.exp(r["lm_loss"])) for r in valid])
    for tag in ("iteration-time", "throughput", "forward-backward-time", "forward-compute-time", "optimizer-time",
                "mem-reserved-bytes", "mem-allocated-bytes", "mem-max-allocated-bytes", "mem-allocated-count"):
        got = scalars(tag)
        expect([s for s, _ in got] == [1, 2, 3, 4, 5, 6] and all(v > 0 for _, v in got), f"{tag}: {got}")

    texts = {t: events.Tensors(t)[-1].tensor_proto.string_val[0].decode() for t in events.Tags()["tensors"]}
    arguments = dict(re.findall(r"^  (\w+) \.* (.*)$", printed, re.MULTILINE))
    expect(len(arguments) > 80, f"only {len(arguments)} printed arguments")
    # The tokenizer's word (63 and an end token) comes after the arguments are printed.
    for name, value in {"vocab_size": "64", "padded_vocab_size": "128"}.items():
        arguments.pop(name)
        expect(texts.get(f"{name}/text_summary") == value, name)
    for name, value in arguments.items():
        expect(texts.get(f"{name}/text_summary") == value, f"argument {name}: {texts.get(name + '/text_summary')} for {value}")
    print(f"{len(events.Tags()['scalars'])} scalars and {len(texts)} texts agree")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--compare")
    parser.add_argument("--printed")
    args = parser.parse_args()
    if args.compare:
        return compare(args.compare, pathlib.Path(args.printed).read_text(encoding="utf-8"))
    python = reference_python()
    with tempfile.TemporaryDirectory() as folder:
        run(args.program, folder, "--exit-interval", "3")
        printed = run(args.program, folder)
        (pathlib.Path(folder) / "printed.txt").write_text(printed, encoding="utf-8")
        return subprocess.run([python, __file__, "--compare", folder, "--printed", f"{folder}/printed.txt"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

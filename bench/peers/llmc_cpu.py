#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llm.c's CPU program (train_gpt2.c of karpathy/llm.c) against Pentatron: the same weights, the same tokens.

Given a checkout of llm.c, a Pentatron checkpoint of one rank (initial values) and the corpus, builds the program in a
work folder from a changed copy of its source (`changes`: what its main fixes), writes the files it opens there, and
runs it. Prints one JSON line: losses and seconds of each step as the program prints them (batch, forward, backward and
AdamW), the compiler and the changes.
  llmc_cpu.py --llmc llm.c --checkpoint DIR/iter_0000001 --data PREFIX --batch 4 --length 64 --steps 8 --threads 2
              --work FOLDER
A work folder made with the same arguments is used again. $CC is the compiler, gcc if unset.
llm.c reads rows one after the other, so the last token of a sample has to be the first of the next one (cpu.py's corpus
is so). As PyTorch in gpt2_cpu.py it decays biases and norms too, which Pentatron leaves out.
"""
import argparse
import array
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

# Those of its Makefile with OpenMP. (Its default compiler is make's cc.)
FLAGS = ["-Ofast", "-Wno-unused-result", "-Wno-ignored-pragmas", "-Wno-unknown-attributes", "-march=native",
         "-fopenmp", "-DOMP"]
LIBRARIES = ["-lm", "-lgomp"]
DATA = "dev/data/tinyshakespeare/tiny_shakespeare_{}.bin"
STEP = re.compile(r"step (\d+): train loss (\S+) \(took (\S+) ms\)")


def changes(a):
    """Text of train_gpt2.c and its replacement; each has to be there once."""
    return {
        "int B = 4;": f"int B = {a.batch};",
        "int T = 64;": f"int T = {a.length};",
        "step <= 40": f"step < {a.steps}",
        # Batches in the order of the file.
        "train_tokens, B, T, 0, 1, 1": "train_tokens, B, T, 0, 1, 0",
        # Neither validation nor sampling; its time of a step counts neither.
        "step % 10 == 0": "0",
        "step > 0 && step % 20 == 0": "0",
        # AdamW as the others: lr 1e-4, betas 0.9 and 0.999, eps 1e-8 are there already.
        "1e-8f, 0.0f": "1e-8f, 0.1f",
        # A line at a time, to see when the first step ends.
        "int main() {": "int main() { setvbuf(stdout, NULL, _IOLBF, BUFSIZ);",
    }


def compiler():
    return shlex.split(os.environ.get("CC") or "gcc")


def build(a):
    text = (a.llmc / "train_gpt2.c").read_text()
    for old, new in changes(a).items():
        if text.count(old) != 1:
            sys.exit(f"{a.llmc}/train_gpt2.c has {old!r} {text.count(old)} times, not once (known to fit: f1e2ace)")
        text = text.replace(old, new)
    source = a.work / "train_gpt2.c"
    source.write_text(text)
    words = [*compiler(), *FLAGS, "-I", str(a.llmc), str(source), *LIBRARIES, "-o", str(a.work / "train_gpt2")]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def header(*values):
    return array.array("i", [*values, *[0] * (256 - len(values))]).tobytes()


def write_weights(model, m, path):
    """Its checkpoint of version 3: fp32, vocabulary padded, each kind of tensor of all layers together."""
    def of_layers(name):
        for kind in ("weight", "bias"):
            for layer in model.layers:
                yield getattr(getattr(layer, name), kind)

    tensors = [model.words.weight, model.positions.weight]
    for name in ("norm1", "qkv", "proj", "norm2", "fc1", "fc2"):
        tensors += of_layers(name)
    tensors += [model.norm.weight, model.norm.bias]
    with open(path, "wb") as out:
        out.write(header(20240326, 3, *(m[key] for key in (
            "max_position_embeddings", "vocab_size", "num_layers", "num_attention_heads", "hidden_size",
            "padded_vocab_size"))))
        for tensor in tensors:
            tensor.detach().numpy().tofile(out)
        # Not while somebody is timed.
        os.fsync(out)


def write_tokens(get, count, paths):
    tokens = array.array("H")
    last = None
    for i in range(count):
        sample = get(i).tolist()
        if i > 0 and sample[0] != last:
            sys.exit(f"sample {i} starts with {sample[0]}, the one before ends with {last}: not rows for llm.c")
        tokens.extend(sample[:-1])
        last = sample[-1]
    tokens.append(last)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(header(20240520, 1, len(tokens)) + tokens.tobytes())


def make(a):
    # torch only where it is needed.
    from gpt2_cpu import load, samples
    model, m = load(a.checkpoint)
    if m["seq_length"] != a.length:
        sys.exit(f"the checkpoint is of sequences of {m['seq_length']}, not {a.length}")
    build(a)
    write_weights(model, m, a.work / "gpt2_124M.bin")
    # The program opens the validation file; it reads no batch of it. It lives without a tokenizer.
    paths = [a.work / DATA.format(part) for part in ("train", "val")]
    write_tokens(samples(a.data, a.length), a.steps * a.batch, paths)


def train(a):
    begin = time.monotonic()
    process = subprocess.Popen([a.work / "train_gpt2"], cwd=a.work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={**os.environ, "OMP_NUM_THREADS": str(a.threads)})
    losses, seconds, first, text = [], [], None, ""
    for line in process.stdout:
        text += line
        step = STEP.match(line)
        if step:
            first = first or time.monotonic() - begin
            losses.append(float(step[2]))
            seconds.append(float(step[3]) / 1e3)
    if process.wait() != 0 or len(losses) != a.steps:
        sys.exit(f"train_gpt2 ended with {process.returncode} after {len(losses)} of {a.steps} steps\n{text}")
    return {"losses": losses, "seconds": seconds, "start_to_first_step": first}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--llmc", type=pathlib.Path, required=True, help="a checkout of karpathy/llm.c")
    ap.add_argument("--work", type=pathlib.Path, required=True, help="folder for the program and its files")
    for name in ("checkpoint", "data"):
        ap.add_argument("--" + name, required=True)
    for name in ("batch", "length", "steps", "threads"):
        ap.add_argument("--" + name, type=int, required=True)
    a = ap.parse_args()
    a.llmc, a.work = a.llmc.resolve(), a.work.resolve()
    a.work.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    version = version.splitlines()[0]
    made_of = json.dumps([str(a.llmc), a.checkpoint, a.data, changes(a), version])
    stamp = a.work / "made_of.json"
    if not stamp.exists() or stamp.read_text() != made_of:
        stamp.unlink(missing_ok=True)
        make(a)
        stamp.write_text(made_of)
    print(json.dumps({**train(a), "compiler": " ".join([version, *FLAGS]), "changes": changes(a)}))


if __name__ == "__main__":
    main()

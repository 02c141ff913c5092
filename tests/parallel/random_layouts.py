#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random models, options and layouts: one loss.

Each trial draws a small model, an optimizer and a layout of up to eight ranks (threads of one process, fp64) and holds the program to
its promises: losses, gradient norms and weight norms of the layout are those of one rank; a run that was stopped goes on with the same
bits in its layout, and in another one within the same bound. What the program refuses (exit codes 2 and 8) is counted and must stay the
smaller part. A finding is printed with both command lines; the last line is a count. Ends with 1 at findings.

    tests/parallel/random_layouts.py --program build/release/bin/pentatron --seed 7 --trials 500
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shlex
import subprocess
import tempfile

REFUSED = (2, 8)
# Losses and norms in fp64, relative. What takes whole matrices, or signs, makes more of rounding: see docs/training.md.
TOLERANCE = {"adam": 1e-8, "sgd": 1e-8, "lion": 1e-6, "muon": 1e-6, "soap": 1e-6}
# Lion steps by signs: where a gradient is zero but for rounding (what is added to all keys changes no probability), weights go either way.
PARAMS_NORM_OF_LION = 1e-3
STEPS = 4


class Draw:
    """Words of a command line, drawn one after the other."""

    def __init__(self, rng):
        self.rng = rng

    def maybe(self, share, *words):
        return list(words) if self.rng.random() < share else []

    def one(self, *choices):
        return self.rng.choice(choices)

    def attention(self, heads):
        words = self.maybe(0.2, "--kv-channels", self.one(8, 16, 24))
        words += self.maybe(0.5, "--group-query-attention", "--num-query-groups", self.one(*(g for g in (1, 2, 4, 8) if heads % g == 0)))
        words += self.one([], [], self.one(["--qk-layernorm"], ["--qk-layernorm", "--qk-norm-scope", "all-heads"], ["--qk-l2-norm"]))
        words += self.maybe(0.25, "--window-size", self.one("4,0", "9,0"), *self.maybe(0.5, "--window-attn-skip-freq", self.one(2, 3)))
        words += self.maybe(0.2, "--softmax-type", self.one("off-by-one", "learnable"))
        words += self.maybe(0.2, "--attention-output-gate") + self.maybe(0.1, "--attn-logit-softcapping", 20.0)
        return words + self.maybe(0.1, "--qk-clip", "--qk-clip-threshold", 0.05)

    def positions(self):
        kind = self.one("learned_absolute", "rope", "rope", "alibi", "relative", "none", "yarn")
        words = ["--position-embedding-type", kind]
        if kind in ("rope", "yarn"):
            words += self.maybe(0.3, "--rotary-percent", self.one(0.5, 0.25)) + self.maybe(0.3, "--rotary-interleaved")
            words += self.maybe(0.2, "--no-rope-freq", self.one(2, 3))
        if kind == "yarn":
            words += ["--rotary-scaling-factor", 4.0, "--yarn-original-max-position-embeddings", 16]
        return words + (self.maybe(0.2, "--use-rope-scaling") if kind == "rope" else [])

    def feed_forward(self):
        return self.maybe(0.3, "--ffn-hidden-size", self.one(32, 64, 72, 96)) + self.one(
            [], ["--swiglu"], ["--squared-relu"], ["--geglu"], ["--openai-gelu"], ["--quick-geglu"],
            ["--quick-geglu", "--glu-linear-offset", 1.0, "--activation-func-clamp-value", 7.0])

    def layer(self):
        words = self.maybe(0.5, "--normalization", "RMSNorm") + self.maybe(0.3, "--apply-layernorm-1p")
        words += self.maybe(0.5, "--disable-bias-linear", *self.maybe(0.5, "--add-qkv-bias"), *self.maybe(0.3, "--add-attention-output-bias"),
                            *self.maybe(0.3, "--add-mlp-bias"))
        words += self.one([], [], [], ["--parallel-attention", "shared-norm"], ["--parallel-attention", "own-norms"], ["--norm-placement", "post"],
                          ["--norm-placement", "both"], ["--apply-residual-connection-post-layernorm"])
        return words + ["--hidden-dropout", self.one(0, 0.1), "--attention-dropout", self.one(0, 0.1)]

    def vocabulary(self):
        words = ["--vocab-size", self.one(63, 127, 200)] + self.maybe(0.5, "--untie-embeddings-and-output-weights")
        # The padded size follows the tensor-parallel size, unless it is given.
        words += self.one(["--pad-vocab-in-softmax", "--padded-vocab-size", 256], *(["--make-vocab-size-divisible-by", n] for n in (1, 8, 128)))
        words += self.maybe(0.1, "--final-logit-softcapping", 10.0) + self.maybe(0.15, "--label-smoothing", 0.1)
        return words + self.maybe(0.1, "--embedding-multiplier", 3.0)

    def training(self, optimizer):
        words = ["--optimizer", optimizer, "--lr", 0.005, "--global-batch-size", 8, "--train-iters", STEPS, "--log-interval", 1, "--eval-interval", 2,
                 "--eval-iters", 1, "--log-params-norm", "--mock-data", "--tokenizer-type", "NullTokenizer", "--seq-length", 32,
                 "--max-position-embeddings", self.one(32, 64), "--seed", self.rng.randrange(1000)]
        words += self.maybe(0.3, "--clip-grad", self.one(0, 0.1)) + self.maybe(0.2, "--decoupled-lr", 0.001)
        words += self.maybe(0.2, "--weight-decay", 0.1, "--apply-wd-to-qk-layernorm") + self.maybe(0.3, "--eod-mask-loss")
        words += self.one([], [], ["--reset-attention-mask"], ["--reset-attention-mask", "--reset-position-ids"])
        words += self.one([], [], [], [], [], ["--lora-rank", 4], ["--lora-rank", 4, "--lora-dora"], ["--freeze-parameters", "*attention*"],
                          ["--freeze-parameters", "embedding*"])
        if optimizer in ("adam", "sgd", "muon") and "--lora-rank" not in words:
            words += self.maybe(0.15, "--use-mup", "--mup-base-hidden-size", 16)
        return words

    def model(self):
        """Words of a model and its training, layers, optimizer."""
        heads, layers = self.one(2, 4, 4, 8), self.one(4, 4, 8)
        optimizer = self.one("adam", "adam", "sgd", "lion", "muon", "soap")
        words = ["--num-layers", layers, "--hidden-size", heads * self.one(8, 16), "--num-attention-heads", heads,
                 "--init-method-std", self.one(0.02, 0.2), *self.maybe(0.1, "--init-method-xavier-uniform")]
        words += self.attention(heads) + self.positions() + self.feed_forward() + self.layer() + self.vocabulary()
        return words + self.training(optimizer), optimizer

    def sizes(self):
        while True:
            sizes = self.one(1, 1, 2, 2, 4), self.one(1, 1, 2, 2, 4), self.one(1, 1, 1, 2, 4), self.one(1, 1, 2, 4)
            if 1 < sizes[0] * sizes[1] * sizes[2] * sizes[3] <= 8:
                return sizes

    def context(self, size):
        kind = self.one("p2p", "a2a", "all_gather", *(["a2a+p2p"] if size == 4 else []))
        words = ["--context-parallel-size", size, "--cp-comm-type", kind]
        return words + (["--hierarchical-context-parallel-sizes", 2, 2] if kind == "a2a+p2p" else [])

    def pipeline(self):
        words = self.one([], [], ["--num-virtual-stages-per-pipeline-rank", 2], *(["--pipeline-schedule", s] for s in ("gpipe", "zb-h1", "zb-auto")))
        return words + self.maybe(0.1, "--use-tp-pp-dp-mapping")

    def data(self, size):
        words = self.one([], ["--use-distributed-optimizer"], ["--use-distributed-optimizer", "--overlap-param-gather"],
                         *(["--use-megatron-fsdp", "--data-parallel-sharding-strategy", s] for s in ("optim", "optim_grads", "optim_grads_params")))
        if size > 1 and words:
            words += self.maybe(0.3, "--num-distributed-optimizer-instances", 2)
        return words + self.maybe(0.3, "--ddp-bucket-size", self.one(100, 1000, 5000))

    def recompute(self, tensor):
        return self.one([], [], [], ["--recompute-granularity", "selective", "--recompute-modules", *self.one(["core_attn"], ["mlp"], ["layernorm", "mlp"])],
                        ["--recompute-granularity", "full", "--recompute-method", self.one("uniform", "block"), "--recompute-num-layers", self.one(1, 2),
                         *(self.maybe(0.4, "--distribute-saved-activations") if tensor > 1 else [])])

    def layout(self):
        tensor, pipeline, context, data = self.sizes()
        words = ["--world-size", tensor * pipeline * context * data, "--tensor-model-parallel-size", tensor, "--pipeline-model-parallel-size", pipeline]
        words += self.context(context) if context > 1 else []
        words += self.maybe(0.6, "--sequence-parallel") if tensor > 1 else []
        words += self.pipeline() if pipeline > 1 else []
        words += self.data(data) if data * context > 1 else []
        words += self.recompute(tensor) + self.maybe(0.15, "--optimizer-cpu-offload")
        return words + ["--micro-batch-size", self.one(*(size for size in (1, 2, 4, 8) if 8 % (data * size) == 0))]


class Refused(Exception):
    pass


class Failed(Exception):
    pass


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def run(self, words):
        """Losses and norms by iteration and name."""
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        command = [self.program, "pretrain_gpt", "--fp64", "--distributed-backend", "threads", "--metrics-file", metrics, *words]
        try:
            result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, cwd=self.folder)
        except subprocess.TimeoutExpired as error:
            raise Failed("still running after 600 s") from error
        if result.returncode in REFUSED:
            raise Refused()
        if result.returncode != 0:
            raise Failed(f"exit code {result.returncode}: {result.stderr[-600:]}")
        found = {}
        for line in metrics.read_text().splitlines():
            row = json.loads(line)
            for name, value in row.items():
                if "iteration" in row and isinstance(value, (int, float)) and "scale" not in name and ("loss" in name or "norm" in name):
                    found[row["iteration"], name] = value
        return found


def difference(wanted, found, tolerance):
    """In words, or empty. tolerance: of a value's name."""
    if wanted.keys() != found.keys():
        return f"other values: {sorted(map(str, wanted.keys() ^ found.keys()))[:4]}"
    for (iteration, name), value in wanted.items():
        here, most = found[iteration, name], tolerance(name)
        off = abs(here - value) / max(abs(value), 1e-9)
        if not off <= most:  # a NaN, too
            return f"{name} of iteration {iteration}: {value!r}, here {here!r} (relative {off:.1e}, at most {most:.0e})"
    return ""


def bound_of(optimizer):
    return lambda name: PARAMS_NORM_OF_LION if optimizer == "lion" and name == "params_norm" else TOLERANCE[optimizer]


def same_bits(_name):
    return 0.0


class Trial:
    def __init__(self, draw, runner, counts):
        self.runner, self.counts, self.found = runner, counts, []
        self.model, optimizer = draw.model()
        self.first, self.second = draw.layout(), draw.layout()
        self.tolerance = bound_of(optimizer)

    def compare(self, claim, wanted, layout, tolerance):
        """Runs self.model in the layout and compares it with the wanted values. What it found, if it is as claimed."""
        try:
            found = self.runner.run(self.model + layout)
        except Refused:
            self.counts["refused"] += 1
            return None
        except Failed as error:
            self.report(claim, layout, str(error))
            return None
        words = difference(wanted, found, tolerance)
        if words:
            self.report(claim, layout, words)
            return None
        self.counts[claim] += 1
        return found

    def report(self, claim, layout, words):
        self.counts["findings"] += 1
        line = shlex.join(str(word) for word in self.model)
        print(f"FOUND: {claim}: {words}\n  model  {line}\n  layout {shlex.join(map(str, layout))}\n  before {shlex.join(map(str, self.first))}", flush=True)

    def run(self):
        try:
            alone = self.runner.run([*self.model, "--world-size", 1, "--micro-batch-size", 8])
        except Refused:
            self.counts["models refused"] += 1
            return
        except Failed as error:
            self.report("one rank", ["--world-size", "1"], str(error))
            return
        straight = self.compare("one loss", alone, self.first, self.tolerance)
        if straight is None:
            return
        checkpoint = self.runner.folder / "checkpoint"
        try:
            self.runner.run([*self.model, *self.first, "--save", checkpoint, "--save-interval", STEPS, "--exit-interval", STEPS // 2])
        except Failed as error:
            self.report("save", self.first, str(error))
            return
        late = {key: value for key, value in straight.items() if key[0] > STEPS // 2}
        self.compare("same bits after a stop", late, [*self.first, "--load", checkpoint], same_bits)
        self.compare("on in another layout", late, [*self.second, "--load", checkpoint], self.tolerance)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=40)
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    # Ranks are threads: they share the cores with whatever else runs.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    counts = collections.Counter()
    for trial in range(options.trials):
        # Each by its own key, so that one can be repeated alone.
        draw = Draw(random.Random(f"{options.seed} {trial}"))
        with tempfile.TemporaryDirectory() as folder:
            Trial(draw, Runner(program, folder), counts).run()
        if trial % 10 == 9:
            print(f"{trial + 1} of {options.trials}: {dict(counts)}", flush=True)
    held = counts["one loss"]
    print(f"{options.trials} trials of seed {options.seed}: {dict(counts)}")
    if counts["findings"] or held < options.trials // 3:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

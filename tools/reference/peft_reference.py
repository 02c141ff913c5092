#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares adapters with the `peft` library, both ways, LoRA and DoRA, on every model of hugging_face_reference.py that lays out its tensors in a
way of its own: a tensor for each part, fused ones, grouped by heads, transposed. All linear layers of the blocks are adapted.

    peft_reference.py --program PATH --tool PATH/logits_tool [--family NAME ...]

peft makes an adapter with random values; a run starts from it (--lora-load), and its checkpoint, its merged export and peft's model give equal logits in
fp32 within 1e-5 of the largest; peft loads the adapter that the checkpoint exports, with equal logits. Python: .deps/reference-venv with the packages of
requirements_models.txt and `peft`.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hugging_face_reference import MODELS, TOLERANCE, build, randomise, tell_failed  # noqa: E402 (enters the virtual environment)

import numpy  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

SEQUENCES = [[5, 9, 2], [1, 40, 3, 77, 60, 2, 8, 11, 96]]
# Their tensors are laid out as those of another model of the list.
SAME_LAYOUT = {"llama-3.1", "llama-yarn", "gpt2-erf", "qwen2-window", "mistral-window", "starcoder2-window", "phi3-partial", "gpt_neox-serial", "falcon-rw"}
SOME = {"llama": {"q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"}}  # elsewhere all


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


def our_logits(tool, folder):
    done = subprocess.run([tool, str(folder)], input=json.dumps({"sequences": SEQUENCES, "generate": 0}), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [numpy.array(rows) for rows in json.loads(done.stdout)["logits"]]


def their_logits(model):
    with torch.no_grad():
        return [model(input_ids=torch.tensor([s])).logits[0].numpy() for s in SEQUENCES]


def check(what, ours, theirs):
    off = max(numpy.abs(a - b).max() / numpy.abs(b).max() for a, b in zip(ours, theirs))
    assert off <= TOLERANCE, f"{what}: logits differ by {off}"
    print(f"  {what}: {off:.1e}")


def linear_layers(model):
    """Last names of the linear layers of the blocks."""
    kinds = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if type(module).__name__ in ("Linear", "Conv1D", "FalconLinear")}
    return kinds - {"lm_head", "embed_out"}


def compare(name, kind, options, dora, program, tool, folder):
    generator = torch.Generator().manual_seed(7)
    base = build(kind, options)
    randomise(base, generator)
    base.save_pretrained(folder / "base")
    plain = their_logits(base)
    modules = SOME.get(name, linear_layers(base))
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=6, target_modules=sorted(modules), use_dora=dora,
                                                      fan_in_fan_out=kind == "GPT2", task_type="CAUSAL_LM")).eval()
    adapted = {n.split(".lora_A", 1)[0].rsplit(".", 1)[-1] for n, _ in model.named_parameters() if ".lora_A" in n}
    assert adapted == modules, f"{adapted} are adapted, not {modules}"
    with torch.no_grad():
        for parameter in (p for n, p in model.named_parameters() if "lora_" in n):
            noise = 0.2 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter * (1 + noise) if parameter.dim() == 1 else noise)
    model.save_pretrained(folder / "theirs")
    expected = their_logits(model)
    assert max(numpy.abs(a - b).max() for a, b in zip(expected, plain)) > 1e-2, "the adapter changes nothing"
    run(program, "pretrain_gpt", "--load", folder / "base", "--finetune", "--lora-load", folder / "theirs", "--save", folder / "run", "--save-interval", 1, "--seq-length", 16, "--mock-data",
        "--micro-batch-size", 1, "--train-iters", 1, "--lr", "1e-30", "--min-lr", 0, "--eval-iters", 0)
    check("our checkpoint from their adapter", our_logits(tool, folder / "run"), expected)
    run(program, "convert", "export", "--load", folder / "run", "--hf", folder / "merged")
    check("our merged export", our_logits(tool, folder / "merged"), expected)
    run(program, "convert", "export", "--load", folder / "run", "--hf", folder / "ours", "--adapter", "--like", folder / "base")
    again = build(kind, options)
    again.load_state_dict(type(again).from_pretrained(folder / "base").state_dict())
    check("their model with our adapter", their_logits(peft.PeftModel.from_pretrained(again, folder / "ours").eval()), expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--family", nargs="*", help="models whose names begin so")
    words = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    for name, kind, options in MODELS:
        if name in SAME_LAYOUT or (words.family and not any(name.startswith(f) for f in words.family)):
            continue
        for dora in (False, True):
            what = f"{name} {'DoRA' if dora else 'LoRA'}"
            print(what, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    compare(name, kind, options, dora, words.program, words.tool, pathlib.Path(folder))
                except AssertionError as problem:
                    failed.append(what)
                    print(f"  FAILED: {problem}", flush=True)
    return tell_failed(failed)


if __name__ == "__main__":
    sys.exit(main())

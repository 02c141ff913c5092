#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch eager against Pentatron on the CPU: the same GPT-2 kind, the same initial weights, the same tokens.

Reads a Pentatron checkpoint of one rank (initial values) and the corpus with its index files, so that sample i is the same
sample i, then trains with fused AdamW. Prints one JSON line: losses and seconds of each step.
  gpt2_cpu.py --checkpoint DIR/iter_0000001 --data PREFIX --batch 4 --steps 8 --threads 2
"""
import argparse
import glob
import json
import time

START = time.monotonic()

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(h, 2))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, h))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads, positions, vocab, padded):
        super().__init__()
        self.vocab = vocab
        self.words, self.positions = nn.Embedding(padded, hidden), nn.Embedding(positions, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens, labels):
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.words.weight)
        # Padding columns are outside the softmax; slicing them off copies, so they are masked only where there are any.
        if self.vocab < logits.shape[-1]:
            logits[..., self.vocab:] = float("-inf")
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


def read_safetensors(path):
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8:8 + size].tobytes())
    for name, item in header.items():
        if name != "__metadata__" and name.startswith("param/"):
            begin, end = item["data_offsets"]
            values = np.frombuffer(raw[8 + size + begin:8 + size + end].tobytes(), dtype=np.float32)
            yield name[len("param/"):].rsplit("#", 1)[0], torch.from_numpy(values.copy())


def load(folder):
    manifest = json.load(open(f"{folder}/manifest.json"))["manifest"]
    m = manifest["config"]["model"]
    parts = dict(read_safetensors(glob.glob(f"{folder}/*.safetensors")[0]))
    h = m["hidden_size"]
    model = Gpt2(m["num_layers"], h, m["num_attention_heads"], m["max_position_embeddings"], m["vocab_size"],
                 m["padded_vocab_size"])
    with torch.no_grad():
        def put(target, *names):
            values = torch.cat([parts.pop(name) for name in names])
            target.zero_()
            target.view(-1)[:values.numel()] = values
        put(model.words.weight, "embedding.word_embeddings.weight")
        put(model.positions.weight, "embedding.position_embeddings.weight")
        for i, layer in enumerate(model.layers):
            p = f"decoder.layers.{i}."
            for kind in ("weight", "bias"):
                put(getattr(layer.norm1, kind), f"{p}input_layernorm.{kind}")
                put(getattr(layer.norm2, kind), f"{p}pre_mlp_layernorm.{kind}")
                put(getattr(layer.qkv, kind), *(f"{p}self_attention.linear_qkv.{x}.{kind}" for x in "qkv"))
                put(getattr(layer.proj, kind), f"{p}self_attention.linear_proj.{kind}")
                put(getattr(layer.fc1, kind), f"{p}mlp.linear_fc1.{kind}")
                put(getattr(layer.fc2, kind), f"{p}mlp.linear_fc2.{kind}")
        for kind in ("weight", "bias"):
            put(getattr(model.norm, kind), f"decoder.final_layernorm.{kind}")
    assert not parts, f"tensors without a place: {list(parts)}"
    return model, m


def samples(prefix, length):
    """Sample i of the training part, by Megatron's three index files."""
    raw = open(prefix + ".idx", "rb").read()
    dtype = {4: np.int32, 8: np.uint16}[raw[17]]
    count = int.from_bytes(raw[18:26], "little")
    lengths = np.frombuffer(raw, np.int32, count, 34)
    pointers = np.frombuffer(raw, np.int64, count, 34 + 4 * count) // np.dtype(dtype).itemsize
    tokens = np.memmap(prefix + ".bin", dtype=dtype, mode="r")
    index = {}
    for kind in ("document", "sample", "shuffle"):
        index[kind] = np.load(glob.glob(f"{prefix}/cache/GPTDataset_indices/*-train-{kind}_index.npy")[0])

    def get(i):
        i = index["shuffle"][i]
        (doc, begin), (last, end) = index["sample"][i], index["sample"][i + 1]
        pieces = []
        for d in range(doc, last + 1):
            at, n = pointers[index["document"][d]], lengths[index["document"][d]]
            pieces.append(tokens[at + (begin if d == doc else 0):at + (end + 1 if d == last else n)])
        sample = torch.from_numpy(np.concatenate(pieces).astype(np.int64))
        assert len(sample) == length + 1
        return sample
    return get


def main():
    ap = argparse.ArgumentParser()
    for name, kind in (("checkpoint", str), ("data", str), ("batch", int), ("steps", int), ("threads", int)):
        ap.add_argument("--" + name, type=kind, required=True)
    ap.add_argument("--lr", type=float, default=1e-4)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    model, m = load(a.checkpoint)
    get = samples(a.data, m["seq_length"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.1, fused=True)
    losses, seconds = [], []
    for step in range(a.steps):
        begin = time.monotonic()
        rows = torch.stack([get(step * a.batch + j) for j in range(a.batch)])
        loss = model(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.monotonic() - begin)
        if step == 0:
            first = time.monotonic() - START
    print(json.dumps({"losses": losses, "seconds": seconds, "start_to_first_step": first}))


if __name__ == "__main__":
    main()

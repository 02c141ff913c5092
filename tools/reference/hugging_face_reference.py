#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares every model family with `transformers`, both ways, on small models with random weights in every tensor.

    hugging_face_reference.py --program PATH --tool PATH/logits_tool --faulty-tool PATH/faulty_logits_tool [--family NAME ...]

For each model: transformers saves it; our logits from that folder, from its import, of all sequences packed into one batch and of 2 x 2 ranks
equal its logits in fp32 within 1e-5 of the largest, and 64 greedy tokens are the same; import and export give back every file, byte for byte;
transformers loads the export, and one whose config.json Pentatron wrote itself, with equal logits. The comparison must fail for every model
where our code exchanges two heads, shifts positions by one or drops the mask (faulty_logits_tool), and where it reads weights with heads exchanged.
For the first model of a family the 2 x 2 ranks write the 64 tokens too, files go there and back in bf16 with a tokenizer too, and it must fail
where the reference is the one that is wrong. Of a model of text and pictures the language model is compared.
Python: .deps/reference-venv (tools/reference/setup.sh).
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import venv_python

try:
    import numpy
    import tokenizers
    import torch
    import transformers
    from safetensors import safe_open
except ImportError as error:
    venv_python.enter(error)

LENGTHS = (1, 7, 33)
LONGER = {"falcon-rw": 290}  # its places are rounded from 257 on
GENERATED = 64
TOLERANCE = 1e-5
SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "max_position_embeddings": 128, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GQA = {**SIZES, "num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_theta": 500000.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 16,
            "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0], "long_factor": [1.1, 1.5, 2.5, 4.0, 7.0, 12.0, 20.0, 32.0]}
GPT2 = {"vocab_size": 97, "n_positions": 128, "n_embd": 64, "n_layer": 4, "n_head": 4, "bos_token_id": None, "eos_token_id": None}
# Name, what the family's models look like, the classes and their configurations. `waits`: needs of the model that this version lacks.
MODELS = [
    ("llama", "Llama", GQA),
    ("llama-3.1", "Llama", {**GQA, "head_dim": 24, "rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    ("llama-biases", "Llama", {**SIZES, "attention_bias": True, "mlp_bias": True,
                               "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
    ("llama-attention-biases", "Llama", {**GQA, "attention_bias": True}),
    ("llama-mlp-biases", "Llama", {**GQA, "mlp_bias": True}),
    ("llama-yarn", "Llama", {**GQA, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
                                                        "original_max_position_embeddings": 32}}),
    ("gpt2", "GPT2", GPT2),
    ("gpt2-erf", "GPT2", {**GPT2, "n_inner": 80, "activation_function": "gelu", "tie_word_embeddings": False}),
    ("qwen2", "Qwen2", GQA),
    ("qwen2-window", "Qwen2", {**GQA, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    ("qwen3", "Qwen3", {**GQA, "head_dim": 24}),
    ("qwen3-biases", "Qwen3", {**GQA, "head_dim": 24, "attention_bias": True}),
    ("mistral", "Mistral", {**GQA, "sliding_window": None}),
    ("mistral-window", "Mistral", {**GQA, "sliding_window": 8}),
    ("smollm3", "SmolLM3", GQA),
    ("smollm3-biases", "SmolLM3", {**GQA, "mlp_bias": True}),
    ("starcoder2", "Starcoder2", GQA),
    ("starcoder2-without-biases", "Starcoder2", {**GQA, "use_bias": False}),
    ("starcoder2-window", "Starcoder2", {**GQA, "sliding_window": 8, "rope_parameters": {"rope_type": "default",
                                                                                        "rope_theta": 999999.4420358813}}),
    ("nemotron", "Nemotron", GQA),
    ("nemotron-attention-biases", "Nemotron", {**GQA, "attention_bias": True}),
    ("nemotron-mlp-biases", "Nemotron", {**GQA, "mlp_bias": True}),
    ("phi3", "Phi3", {**GQA, "original_max_position_embeddings": 128}),
    ("phi3-partial", "Phi3", {**GQA, "partial_rotary_factor": 0.75, "sliding_window": 8}),
    # Texts of 33 tokens are beyond the original length, the shorter ones are not; generation goes over it.
    ("phi3-longrope", "Phi3", {**GQA, "original_max_position_embeddings": 16, "rope_parameters": LONGROPE}),
    ("gpt_neox-serial", "GPTNeoX", {**SIZES, "use_parallel_residual": False}),
    ("gpt_neox", "GPTNeoX", SIZES),
    ("gpt_neox-mlp-biases", "GPTNeoX", {**SIZES, "attention_bias": False}),
    ("gpt_neox-mlp-biases-tanh", "GPTNeoX", {**SIZES, "attention_bias": False, "hidden_act": "gelu_pytorch_tanh"}),
    ("gemma2", "Gemma2", {**GQA, "head_dim": 24, "query_pre_attn_scalar": 36, "sliding_window": 8, "attn_logit_softcapping": 5.0,
                          "final_logit_softcapping": 4.0}),
    ("gemma2-biases", "Gemma2", {**GQA, "head_dim": 24, "query_pre_attn_scalar": 36, "sliding_window": 8, "attn_logit_softcapping": 5.0,
                                 "final_logit_softcapping": 4.0, "attention_bias": True}),
    ("gemma3", "Gemma3", {**GQA, "num_hidden_layers": 6, "head_dim": 24, "query_pre_attn_scalar": 36, "sliding_window": 8}),
    ("falcon-serial", "Falcon", {"parallel_attn": False, "multi_query": False, "bias": True}),
    # Slopes of 16 heads have more than bf16's eight bits.
    ("falcon-rw", "Falcon", {"alibi": True, "parallel_attn": False, "multi_query": False, "bias": True, "num_attention_heads": 16,
                             "max_position_embeddings": 512}),
    ("falcon-7b", "Falcon", {"multi_query": True}),
    ("falcon-40b", "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon-11b", "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    ("olmo2", "Olmo2", GQA),
    ("olmo2-biases", "Olmo2", {**GQA, "attention_bias": True}),
]
FALCON = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
FAMILIES = {"SmolLM3": "smollm", "GPTNeoX": "gpt_neox"}
CLASSES = {"GPT2": ("GPT2Config", "GPT2LMHeadModel"), "Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}


def build(kind, options):
    config_name, model_name = CLASSES.get(kind, (kind + "Config", kind + "ForCausalLM"))
    options = {**FALCON, **options} if kind == "Falcon" else options
    # The library's eager attention adds Falcon's ALiBi twice (to the mask and to the scores); its default one does not.
    config = getattr(transformers, config_name)(**options, attn_implementation="sdpa" if options.get("alibi") else "eager")
    return getattr(transformers, model_name)(config).float().eval()


def randomise(model, generator):
    """Norms, biases and matrices alike; queries and keys are large, so that attention is far from uniform (check_sharp). At 0.35 instead of 0.25
    transformers' own fp32 is up to 1.6e-5 from its fp64, and ours 0.9e-5: more than the tolerance could tell apart."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                is_norm = name.endswith("weight")
                centre = 0.0 if "Gemma" in type(model).__name__ or "Nemotron" in type(model).__name__ else 1.0
                parameter.copy_((centre if is_norm else 0.0) + 0.3 * noise)
            elif any(part in name for part in ("embed", "wte", "wpe")):
                parameter.copy_(0.8 * noise)
            elif any(part in name for part in ("q_proj", "k_proj", "qkv", "query_key_value", "c_attn")):
                parameter.copy_(0.25 * noise)
            else:
                parameter.copy_(0.15 * noise)


def check_sharp(model, tokens):
    attentions = model(tokens, output_attentions=True).attentions
    sharpness = torch.stack([a[:, :, -1, :].max(-1).values.mean() for a in attentions]).mean().item()
    assert sharpness > 3.0 / tokens.shape[1], f"attention is too uniform: {sharpness}"


def reference(model, sequences):
    with torch.no_grad():
        logits = [model(torch.tensor([s])).logits[0].numpy() for s in sequences]
        tokens = []
        for s in sequences:
            text = torch.tensor([s])
            out = model.generate(text, attention_mask=torch.ones_like(text), max_new_tokens=GENERATED, do_sample=False, eos_token_id=None,
                                 pad_token_id=0)
            tokens.append(out[0, len(s):].tolist())
    return logits, tokens


def behind_prefixes(model, sequences):
    """The logits behind every token where the text ends there: with LongRoPE other ones than in a longer text."""
    with torch.no_grad():
        return [numpy.stack([model(torch.tensor([s[:end + 1]])).logits[0, -1].numpy() for end in range(len(s))]) for s in sequences]


def ours(tool, folder, sequences, ranks=(), generate=GENERATED):
    done = subprocess.run([tool, str(folder), *map(str, ranks)], text=True, capture_output=True, check=False,
                          input=json.dumps({"sequences": sequences, "generate": generate}))
    if done.returncode != 0:
        raise RuntimeError(f"logits_tool {folder}: {done.stderr}")
    answer = json.loads(done.stdout)
    return [numpy.array(rows, dtype=numpy.float32) for rows in answer["logits"]], answer["tokens"]


def packed(program, folder, sequences, work):
    """The logits of all sequences as documents of one batch."""
    lines, output, logits = (work / name for name in ("packed.jsonl", "packed.scores", "packed.npy"))
    lines.write_text("".join(json.dumps({"tokens": s}) + "\n" for s in sequences), encoding="utf-8")
    done = subprocess.run([program, "score", "--load", folder, "--input", lines, "--output", output, "--logits", logits, "--precision", "fp32"],
                          text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"score {folder}: {done.stderr}")
    rows = numpy.load(logits)
    ends = numpy.cumsum([len(s) for s in sequences])
    expect(len(rows) == ends[-1], f"{len(rows)} rows of {ends[-1]} tokens")
    return numpy.split(rows, ends[:-1])


def worst(logits, expected):
    return max(float(numpy.abs(a - b).max() / numpy.abs(b).max()) for a, b in zip(logits, expected))


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def compare(what, got, expected):
    error = worst(got[0], expected[0])
    expect(error <= TOLERANCE, f"{what}: logits differ by {error:.3g} of the largest")
    expect(not got[1] or got[1] == expected[1], f"{what}: other greedy tokens")
    return error


def tensors_of(folder):
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                found[name] = file.get_tensor(name)
    return found


def convert(program, *words):
    done = subprocess.run([program, "convert", *map(str, words)], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"convert {' '.join(map(str, words))}: {done.stderr}")


def check_same_files(before, after):
    """The model card is ours."""
    names = {path.name for path in before.iterdir()}
    expect(names | {"README.md"} == {path.name for path in after.iterdir()}, f"other files than {sorted(names)}")
    for name in names:
        expect((before / name).read_bytes() == (after / name).read_bytes(), f"{name} differs after import and export")


def save_tokenizer(folder):
    """A few letters, in the files that the library writes."""
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz.,!?")}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template="{{ messages[0]['content'] }}")
    whole.save_pretrained(folder)


def check_files(args, model, folder):
    """In bf16, in shards and in one file, with a tokenizer."""
    narrow = copy.deepcopy(model).bfloat16()
    for name, size in (("one", "5GB"), ("shards", "40KB")):
        hf, save, back = (folder / f"{name}_{x}" for x in ("hf", "save", "back"))
        narrow.save_pretrained(hf, max_shard_size=size)
        save_tokenizer(hf)
        convert(args.program, "import", "--hf", hf, "--save", save)
        convert(args.program, "export", "--load", save, "--hf", back)
        check_same_files(hf, back)


def shift_queries(model):
    """The first layer's queries stand one position further on: the turn by one position, put into their projection. False: it has none alone."""
    for name, matrix in model.named_parameters():
        if "q_proj.weight" not in name:
            continue
        layer = model.model.layers[0]
        size = getattr(layer.self_attn, "head_dim", matrix.shape[0] // 4)
        text = torch.zeros(1, 2, matrix.shape[1])
        kind = ["sliding_attention"] if type(model).__name__.startswith("Gemma3") else []
        cos, sin = (table[0, 1] for table in model.model.rotary_emb(text, torch.arange(2)[None], *kind))
        turned = len(cos)
        rows = matrix.data.view(-1, size, matrix.shape[1])
        part = rows[:, :turned]
        half = torch.cat([-part[:, turned // 2:], part[:, :turned // 2]], 1)
        rows[:, :turned] = part * cos[:, None] + half * sin[:, None]
        return True
    return False


def exchange_heads(model):
    """Of the first layer, in the columns of its output projection."""
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("o_proj.weight", "attention.dense.weight", "attn.c_proj.weight")):
            matrix = parameter.data.T if "c_proj" in name else parameter.data  # [hidden, heads x size]
            size = matrix.shape[1] // 4
            matrix[:, :2 * size] = torch.cat([matrix[:, size:2 * size], matrix[:, :size]], 1)
            return
    raise AssertionError("no output projection to break")


def shift_learned_positions(model):
    """Learned positions stand one further on. False: there are none."""
    for name, table in model.named_parameters():
        if "wpe" in name:
            table.data = table.data.roll(-1, 0)
            return True
    return False


def check_faults(args, model, folder, hf, sequences, expected):
    """Our code is wrong, one line at a time, of every model: its logits of the longest sequence are not the reference's."""
    longest = max(range(len(sequences)), key=lambda i: len(sequences[i]))
    right = expected[longest]
    done = subprocess.run([args.faulty_tool, str(hf)], text=True, capture_output=True, check=False,
                          input=json.dumps({"sequence": sequences[longest]}))
    if done.returncode != 0:
        raise RuntimeError(f"faulty_logits_tool {hf}: {done.stderr}")
    faulty = {name: worst([numpy.array(rows, dtype=numpy.float32)], [right]) for name, rows in json.loads(done.stdout).items()}
    expect(faulty.pop("none") <= TOLERANCE, "the tool of faults differs without a fault")
    rotates = not any("wpe" in name for name, _ in model.named_parameters())
    if not rotates:
        expect(faulty["positions"] <= TOLERANCE, "a fault of rotary positions shows in a model that has none")
        shifted = copy.deepcopy(model)
        expect(shift_learned_positions(shifted), "a model without rotary and without learned positions")
        shifted.save_pretrained(folder / "shifted")
        logits, _ = ours(args.tool, folder / "shifted", [sequences[longest]], generate=0)
        faulty["positions"] = worst(logits, [right])
    exchanged = copy.deepcopy(model)
    with torch.no_grad():
        exchange_heads(exchanged)
    exchanged.save_pretrained(folder / "exchanged")
    logits, _ = ours(args.tool, folder / "exchanged", [sequences[longest]], generate=0)
    faulty["weights with exchanged heads"] = worst(logits, [right])
    for name, difference in faulty.items():
        expect(difference > 100 * TOLERANCE, f"our fault in {name} is not noticed: {difference:.3g} of the largest logit")


def check_shifted_queries(args, model, folder, sequences, expected):
    """Our side reads weights whose queries stand one position further on, where weights can say so."""
    broken = copy.deepcopy(model)
    with torch.no_grad():
        if not shift_queries(broken):
            return
    broken.save_pretrained(folder / "queries")
    logits, _ = ours(args.tool, folder / "queries", sequences, generate=0)
    expect(worst(logits, expected) > 100 * TOLERANCE, "queries shifted by one in our weights are not noticed")


def check_sensitive(model, sequences, expected):
    """`expected` are our logits; the reference is the one that is wrong."""
    broken = copy.deepcopy(model)
    with torch.no_grad():
        exchange_heads(broken)
        swapped = [broken(torch.tensor([s])).logits[0].numpy() for s in sequences]
        expect(worst(swapped, expected) > 100 * TOLERANCE, "two exchanged heads are not noticed")
        if getattr(model.config, "alibi", False):
            return  # it takes no positions, and a mask only as a row
        length = max(map(len, sequences))
        text = torch.tensor([max(sequences, key=len)])
        # RoPE sees distances only: the later half moves on by one.
        positions = (torch.arange(length) + (torch.arange(length) > length // 2).long())[None]
        shifted = model(text, position_ids=positions).logits[0].numpy()
        unmasked = model(text, attention_mask=torch.zeros(1, 1, length, length)).logits[0].numpy()
    longest = expected[[len(s) for s in sequences].index(length)]
    expect(worst([shifted], [longest]) > 100 * TOLERANCE, "positions shifted by one are not noticed")
    expect(worst([unmasked], [longest]) > 100 * TOLERANCE, "a missing mask is not noticed")


def check_model(args, name, kind, options, folder, whole):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = build(kind, options)
    randomise(model, generator)
    sequences = [torch.randint(0, 97, (n,), generator=generator).tolist() for n in LENGTHS]
    check_sharp(model, torch.tensor([sequences[-1]]))
    expected = reference(model, sequences)
    step_by_step = (behind_prefixes(model, sequences) if "longrope" in name else expected[0], expected[1])
    hf, save, back, own = (folder / x for x in ("hf", "save", "back", "own"))
    model.save_pretrained(hf, max_shard_size="60KB" if whole else "5GB")
    mine = ours(args.tool, hf, sequences)
    error = compare("the folder", mine, step_by_step)
    together = [*sequences, *([torch.randint(0, 97, (LONGER[name],), generator=generator).tolist()] if name in LONGER else [])]
    with torch.no_grad():
        theirs = expected[0] + [model(torch.tensor([s])).logits[0].numpy() for s in together[len(sequences):]]
    compare("one packed batch", (packed(args.program, hf, together, folder), []), (theirs, []))
    tokens = GENERATED if whole else 0
    compare("2 x 2 ranks", ours(args.tool, hf, sequences, ranks=(2, 2), generate=tokens), step_by_step)
    convert(args.program, "import", "--hf", hf, "--save", save)
    compare("the import", ours(args.tool, save, sequences, generate=0), step_by_step)
    convert(args.program, "export", "--load", save, "--hf", back)
    check_same_files(hf, back)
    convert(args.program, "export", "--load", save, "--hf", own, "--family", FAMILIES.get(kind, kind.lower()))
    for exported in (back, own):
        loaded, report = transformers.AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32, output_loading_info=True,
                                                                           attn_implementation=model.config._attn_implementation)
        expect(not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), f"{exported.name}: {report}")
        logits, _ = reference(loaded.eval(), sequences[:1])
        expect(worst(logits, expected[0][:1]) <= 1e-6, f"transformers sees another model in {exported.name}")
    check_faults(args, model, folder, hf, sequences, expected[0])
    if whole:
        check_files(args, model, folder)
        check_sensitive(model, sequences, mine[0])
        check_shifted_queries(args, model, folder, sequences, expected[0])
    return error


def check_pictures(args, folder):
    """Gemma 3 with a vision tower: our logits are those of its language model for text, and what is exported is that model alone."""
    name, _, options = next(model for model in MODELS if model[1] == "Gemma3")
    generator = torch.Generator().manual_seed(sum(map(ord, name)) + 1)
    tower = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(text_config=options, vision_config=tower, mm_tokens_per_image=4, image_token_index=96,
                                       boi_token_index=95, eoi_token_index=94, attn_implementation="eager")
    model = transformers.Gemma3ForConditionalGeneration(config).float().eval()
    randomise(model, generator)
    sequences = [torch.randint(0, 94, (n,), generator=generator).tolist() for n in LENGTHS]
    expected = reference(model, sequences)
    hf, save, back = (folder / x for x in ("hf", "save", "back"))
    model.save_pretrained(hf)
    error = compare("the folder", ours(args.tool, hf, sequences, generate=0), (expected[0], []))
    convert(args.program, "import", "--hf", hf, "--save", save)
    convert(args.program, "export", "--load", save, "--hf", back)
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(back, dtype=torch.float32, output_loading_info=True,
                                                                       attn_implementation="eager")
    expect(type(loaded).__name__ == "Gemma3ForCausalLM", f"the export is a {type(loaded).__name__}")
    expect(not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), f"the export: {report}")
    logits, _ = reference(loaded.eval(), sequences[:1])
    expect(worst(logits, expected[0][:1]) <= 1e-6, "transformers sees another model in the export")
    return error


def write_list(path):
    """config.json and the shapes of all tensors of every model, two layers each: pentatron/families/testdata."""
    models = {}
    for name, kind, options in MODELS:
        layers = "n_layer" if kind == "GPT2" else "num_hidden_layers"
        model = build(kind, {**options, layers: 2})
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            config = json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8"))
            shapes = {k: list(v.shape) for k, v in tensors_of(pathlib.Path(folder)).items()}
        models[name] = {"config": config, "tensors": shapes}
    lines = [f"{json.dumps(name)}: {json.dumps(model)}" for name, model in models.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def tell_failed(names):
    """The last line, and the exit code."""
    print(f"{len(names)} failed" + (": " + ", ".join(names) if names else ""))
    return 1 if names else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--tool")
    parser.add_argument("--faulty-tool")
    parser.add_argument("--list", type=pathlib.Path, help="write names and shapes of all tensors there, and nothing else")
    parser.add_argument("--family", nargs="*", help="models whose names begin so")
    args = parser.parse_args()
    if args.list:
        return write_list(args.list)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed, seen = [], set()
    for name, kind, options in [*MODELS, ("gemma3-pictures", "", {})]:
        if args.family and not any(name.startswith(f) for f in args.family):
            continue
        whole = kind not in seen
        seen.add(kind)
        with tempfile.TemporaryDirectory() as folder:
            try:
                if kind:
                    error = check_model(args, name, kind, options, pathlib.Path(folder), whole)
                else:
                    error = check_pictures(args, pathlib.Path(folder))
                print(f"{name}: good, logits within {error:.2g}", flush=True)
            except (AssertionError, RuntimeError) as problem:
                failed.append(name)
                print(f"{name}: {problem}", flush=True)
    return tell_failed(failed)


if __name__ == "__main__":
    sys.exit(main())

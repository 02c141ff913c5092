#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pentatron/config/known_options_*.cc: the options of Megatron-LM that no hand-written table has.

Facts (spellings, destination, kind, default, choices) come from pentatron/config/testdata/megatron_options.json;
class, topic and reason come from the rules below, first match wins. Run: python3 tools/gen_known_options.py
"""
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "pentatron" / "config"
ROWS_PER_FILE = 75

# (pattern over the first spelling, class, topic, reason). Class P: planned, N: never. A reason says what to do, or which
# part the option waits for. A rule that decides no row is an error: what it was about works by now, or was never there.
FP8 = "comes with training in fp8 and fp4"
STATE = "comes with the precision-aware optimizer state"
GRADIENTS = "comes with tuned gradient communication"
NCCL = "comes with tuned NCCL communicators"
FSDP = "comes with fully sharded data parallelism"
WEIGHT_SHARDS = "comes with sharded tensor-parallel weights"
RECOMPUTE = "comes with activation recompute and offload"
HYBRID = "comes with the hybrid and sparse attention models"
MOE = "comes with mixture of experts"
PIPELINE = "comes with the interleaved and uneven pipeline schedules"
BLENDS = "comes with blends of corpora"
DISTILLATION = "comes with distillation"
INITIALISATION = "comes with the further initialisations"
ONE_KERNEL = "asks for an unfused kernel; results are the same and there is one path; drop it"
OWN_READER = "tunes the reader or writer of Megatron's own format; drop it"

RULES = [
    # Deprecated spellings and dead switches.
    (r"--batch-size$", "N", "training", "removed spelling; use --micro-batch-size"),
    (r"--warmup$", "N", "optimizer", "removed spelling; use --lr-warmup-fraction or --lr-warmup-iters"),
    (r"--model-parallel-size$", "N", "parallel", "removed spelling; use --tensor-model-parallel-size"),
    (r"--checkpoint-activations$", "N", "training", "removed spelling; activation recompute is planned as "
     "--recompute-granularity"),
    (r"--rampup-batch-size$", "N", "training", "Megatron parses it and ignores it; set --global-batch-size, or "
     "--step-batch-size-schedule for sizes that grow"),
    (r"--sample-rate$", "N", "data", "Megatron parses it and ignores it; drop it"),
    (r"--use-rotary-position-embeddings$", "N", "model", "deprecated; use --position-embedding-type rope"),
    (r"--no-position-embedding$", "N", "model", "deprecated; use --position-embedding-type none"),
    (r"--moe-enable-deepep$", "N", "moe", "deprecated; dispatch of tokens is planned as --moe-token-dispatcher-type"),
    (r"--moe-layer-recompute$", "N", "moe", "deprecated; activation recompute is planned as --recompute-modules"),
    (r"--moe-(deepep|hybridep)-num-sms|--moe-hybridep|--moe-ncclep|--moe-permute-fusion-into|--moe-flex",
     "N", "moe", "tunes DeepEP, HybridEP or NCCL EP, libraries that are not used here; drop it"),
    (r"--moe-router-padding-for-fp8$", "N", "moe", "deprecated; planned as --moe-router-padding-for-quantization"),
    (r"--(enable|external)-cuda-graph$|--cuda-graph-scope$", "N", "training",
     "deprecated; graph capture is planned as --cuda-graph-impl"),
    (r"--dist-ckpt-format$", "N", "checkpoint", "deprecated and without effect in Megatron; there is one format here; "
     "drop it"),
    (r"--lazy-mpu-init$", "N", "parallel", "dead switch of an old initialisation order; drop it"),
    (r"--onnx-safe$", "N", "model", "workaround for an exporter of long ago; drop it"),
    (r"--disable-msc$|--enable-msc$", "N", "data", "the multi-storage client is a Python package; mount the storage"),
    (r"--use-legacy-static-engine$", "N", "inference", "an engine Megatron keeps for old scripts; drop it"),
    (r"--is-hybrid-model$|--hybrid-override-pattern$", "N", "model", "deprecated; hybrids are planned as "
     "--hybrid-layer-pattern"),
    (r"--disable-mamba-mem-eff-path$", "N", "model", "picks a slower kernel of another library; drop it"),
    (r"--manual-gc-interval$|--no-manual-gc-eval$", "N", "training", "there is no Python garbage collector; drop it"),
    (r"--no-weight-decay-cond-type$", "N", "optimizer", "deprecated; planned as --apply-wd-to-qk-layernorm"),
    # Python in the loop.
    (r"--spec$", "N", "model", "names a Python module; models are built from options here; drop it"),
    (r"--trust-remote-code$", "N", "data", "no code is ever run from data; drop it"),
    (r"--(fp8|fp4)-quantizer-factory$|--te-precision-config-file$", "N", "precision",
     "names Python code or a recipe of TransformerEngine; recipes are planned as --fp8-recipe"),
    (r"--use-kitchen-attention$|--kitchen-", "N", "precision", "a research quantiser outside Megatron; drop it"),
    (r"--use-te-activation-func$|--use-transformer-engine-op-fuser$|--fused-residual-rmsnorm$", "N", "model",
     "picks a kernel of TransformerEngine; kernels are chosen here by shape; drop it"),
    (r"--flash-attention-version$", "N", "model",
     "picks a kernel of another library; kernels are chosen here by dtype and shape; drop it"),
    (r"--no-(persist-layer-norm|masked-softmax-fusion|bias-swiglu-fusion|bias-dropout-fusion|rope-fusion"
     r"|gradient-accumulation-fusion)$", "N", "model", ONE_KERNEL),
    (r"--no-bias-gelu-fusion$", "P", "model", "switches Megatron to the erf form of GELU, which is planned; the tanh "
     "form is used"),
    (r"--no-clone-scatter-output-in-embedding$|--use-ring-exchange-p2p$", "N", "parallel",
     "works around a memory or network detail that is absent here; drop it"),
    (r"--use-torch-fsdp2$|--torch-fsdp2", "N", "parallel", "drives a Python wrapper of PyTorch; fully sharded data "
     "parallelism is planned as --use-megatron-fsdp"),
    (r"--no-use-layer-wise-param-layout$", "P", "optimizer", "comes with the matrix-wise optimizers"),
    (r"--(tokenizer-hf|chat-template|use-gigatoken)", "P", "data", "comes with the other tokenizers"),
    (r"--tokenizer-model$", "P", "data",
     "comes with the other tokenizers; GPT2BPETokenizer reads --vocab-file and --merge-file"),
    (r"--wandb|--otel|--one-logger|--app-tag", "N", "logging",
     "a logging service with its own client; use --metrics-file or --tensorboard-dir"),
    (r"--adlr-autoresume", "N", "training", "belongs to one site's scheduler; use --exit-duration-in-mins"),
    (r"--(enable-ft-package|calc-ft-timeouts|ft-num)", "N", "training",
     "drives a Python package; a run restarts from its last checkpoint by --load"),
    (r"--(async-strategy|use-persistent-ckpt-worker|async-ckpt-)", "N", "checkpoint",
     "tunes Megatron's background Python processes; drop it"),
    (r"--no-ckpt-fully-parallel-save$", "N", "checkpoint", "every rank always writes what it owns; drop it"),
    (r"--dist-ckpt-(save-pre|strictness)|--ckpt-assume-constant|--ckpt-pg-tensors|--ckpt-fully-parallel-load-(ex|per)"
     r"|--ckpt-drop-redundant|--dist-ckpt-workers|--ckpt-convert-update|--no-strict-fsdp|--no-ckpt-load-validate"
     r"|--ckpt-fully-parallel-(save|load)-process-group|--distrib-optim-fully", "N", "checkpoint", OWN_READER),
    (r"--(memory-snapshot-path|record-memory-history)", "N", "logging",
     "records PyTorch's Python allocator; --log-memory-interval reports memory"),
    (r"--(use-pytorch-profiler|pytorch-profiler|record-shapes)", "N",
     "logging", "drives PyTorch's Python profiler; profiling is planned as --profile"),
    (r"--run-workload-inspector-server$", "N", "logging", "a Python service; `pentatron watch` shows a run"),
    (r"--tp-comm-bootstrap-backend$|--tp-comm-overlap-cfg$", "N", "parallel",
     "configures TransformerEngine's user buffers; overlap is planned as --tp-comm-overlap"),
    (r"--logging-level$", "N", "logging", "sets a Python logger by number; set PENTATRON_LOG_LEVEL to debug, info, warn "
     "or error"),
    (r"--config-logger-dir$|--dump-param-to-param-group-map$", "N", "logging",
     "dumps Python objects; `pentatron checkpoint inspect` shows the parameters"),
    # What is decided otherwise here.
    (r"--enable-experimental$", "N", "run", "an option either works here or is refused; drop it"),
    (r"--fake-process-group$", "N", "parallel", "use --distributed-backend fake with --world-size and --rank"),
    (r"--no-pad-vocab-size$", "N", "model", "use --make-vocab-size-divisible-by 1, which pads for tensor parallelism "
     "only, or --padded-vocab-size"),
    (r"--data-parallel-random-init$", "N", "model",
     "initial values are a function of seed and name, equal on all replicas; drop it"),
    (r"--apply-query-key-layer-scaling$|--fp16-lm-cross-entropy$", "N", "precision",
     "a rescue for fp16; scores and loss are computed in fp32 here; drop it"),
    (r"--ddp-average-in-collective$", "N", "parallel",
     "gradients are summed: the loss is already divided by the global count of valid tokens; drop it"),
    (r"--no-gradient-reduce-div-fusion$", "N", "parallel",
     "reduced gradients are divided by nothing, so there is nothing to fuse; drop it"),
    # What is near at hand here, and not it.
    (r"--use-tp-pp-dp-mapping$", "P", "parallel", "ranks are numbered tp-cp-ep-dp-pp, tp fastest; another order is "
     "planned"),
    (r"--no-initialization$", "P", "model", "initial values are made even where a load replaces them; leaving them out "
     + INITIALISATION),
    (r"--fp32-residual-connection$", "P", "model", "the residual stream has the compute dtype; one in fp32 is planned"),
    (r"--overlap-param-gather$", "P", "parallel", "updated parameters are gathered, all buckets at once, at the end of "
     "the optimizer step; gathering beside the next forward pass " + GRADIENTS),
    (r"--overlap-param-gather-with-optimizer-step$", "P", "parallel", "updated parameters are gathered when all are "
     "updated; doing both at a time " + GRADIENTS),
    (r"--ddp-(num-buckets|bucket-size)$", "P", "parallel", "gradient buckets have 40 MiB; other sizes come with tuned "
     "gradient communication"),
    (r"--ddp-pad-buckets", "P", "parallel", "buckets are padded to 256 bytes a rank; more " + GRADIENTS),
    (r"--ddp-reduce-scatter-with-fp32", "P", "parallel", "gradients travel in fp32 and are added in fp32; sending fewer "
     "bits " + GRADIENTS),
    (r"--disable-gloo-process-groups$", "P", "parallel", "values of the host go over gloo beside nccl; doing without "
     + NCCL),
    (r"--nccl-communicator-config-path$", "P", "parallel", NCCL + "; NCCL's own environment variables hold"),
    (r"--distributed-timeout-seconds-after-init$", "P", "parallel", "one timeout holds for the whole run, "
     "--distributed-timeout-minutes; a second one is planned"),
    (r"--.*flight-recorder", "P", "parallel", "comes with a recorder of collectives; an error names group, operation "
     "and rank"),
    (r"--ckpt-format$", "P", "checkpoint", "one format is saved and loaded here, safetensors shards with a manifest, "
     "which none of the values names: drop it; Megatron's formats come with import and export"),
    (r"--auto-detect-ckpt-format$", "P", "checkpoint", "there is one format to load; Megatron's own are recognised and "
     "refused by name until import and export come"),
    (r"--ckpt-convert-(format|save)$", "P", "checkpoint", "comes with import and export of checkpoints"),
    (r"--async-save$", "P", "checkpoint", "a save ends before the next step begins; saving beside training is planned"),
    (r"--ckpt-fully-parallel-load$", "P", "checkpoint", "every rank reads what it needs from the files; reading each "
     "value once and passing it on is planned"),
    (r"--pretrained-checkpoint$", "P", "checkpoint", "a second place to load from is planned; for the first start use "
     "--load with --finetune"),
    (r"--override-ckpt-iteration$", "P", "checkpoint", "planned; --finetune starts at iteration 0, --ckpt-step loads "
     "another checkpoint"),
    (r"--use-(checkpoint-args|mp-args-from)", "P", "checkpoint", "options from a checkpoint are planned; give those of "
     "the saved run, a difference is refused and named"),
    (r"--save-.*-interval$", "P", "checkpoint", "comes with dumps of tensors during training"),
    (r"--(non-persistent|replication)", "P", "checkpoint", "comes with local and replicated checkpoints"),
    (r"--(data-args-path|per-split-data-args|per-dataset-sequences|mid-level|num-dataset-builder)", "P", "data", BLENDS),
    (r"--dataloader-(fast-cache-load|defer-npy)", "P", "data", "an index cache is opened and checked in full before it "
     "is used; quicker starts come with blends of corpora"),
    (r"--dataloader-inter-document-masking$", "P", "data", "--reset-attention-mask keeps documents apart at "
     "end-of-document tokens; borders from the index are planned"),
    (r"--object-storage-cache-path$", "P", "data", "data from object stores is planned; mount the storage"),
    (r"--freeze-all-layers$", "P", "training", DISTILLATION + "; --skip-train evaluates without training"),
    (r"--optimizer-cuda-graph$", "P", "optimizer", "comes with graph capture"),
    (r"--empty-unused-memory-level$", "P", "training", "cached blocks of memory are kept from step to step; giving them "
     "back is planned"),
    (r"--decrease-batch-size", "P", "training", "a batch that does not divide is refused: change --global-batch-size; "
     "lower sizes by rule are planned"),
    (r"--phase-transition", "P", "training", "training in phases is planned; --exit-interval saves and exits"),
    (r"--log-device-memory-used$", "P", "logging", "comes with the further logs; --log-memory-interval reports the "
     "allocator's memory"),
    # Families.
    (r"--(disable-symmetric|use-nccl-ub|.*nccl-ub$|fsdp-manual-registration|fsdp-db-use)", "P", "parallel",
     "comes with registered communication memory"),
    (r"--(use-sharp|sharp-enabled|high-priority-stream)", "P", "parallel", NCCL),
    (r"--(suggested-communication|create-all-gather-group)", "P", "parallel", FSDP),
    (r"--(moe|gtp-expert).*|--use-fused-weighted", "P", "moe", MOE),
    (r"--(gtp-|.*num-weight-shards)", "P", "parallel", WEIGHT_SHARDS),
    (r"--(mamba-.*-dtype)", "P", "precision", HYBRID),
    (r"--(logits-save-dtype)", "P", "precision", DISTILLATION),
    (r"--(megatron-fsdp-.*-dtype)", "P", "precision", FSDP),
    (r"--(use-precision-aware)", "P", "precision", STATE),
    (r"--(grad-reduce-in-bf16)", "P", "precision", "gradients are reduced in fp32; 16 bits come with tuned gradient "
     "communication"),
    (r"--(fp8|fp4|no-fp8|first-last-layers|num-layers-at|.*mxfp8|keep-fp8)", "P", "precision", FP8),
    (r"--(muon|lion)", "P", "optimizer", "comes with the other optimizers"),
    (r"--apply-wd-to-qk", "P", "optimizer", "comes with --qk-layernorm; vectors have no weight decay"),
    (r"--(rl-|grpo-|langrl|perform-rl|refit-method)", "P", "rl", "comes with reinforcement learning"),
    (r"--(output-bert|bert-embedder)", "P", "inference", "comes with BERT and T5"),
    (r"--(inference-|flash-decode|decode-only|enable-chunked|num-speculative|nccl-all-reduce-for|max-tokens-to-oom"
     r"|batch-invariant|symmetric-ar|use-same-sampling|mlp-chunks-for-prefill)", "P", "inference",
     "comes with the serving engine; see `pentatron generate`"),
    (r"--(num-experts|expert-|overlap-moe|overlap-dispatch|ep-overlap|delay-wgrad|high-priority-a2a"
     r"|use-grouped-gemm)", "P", "moe", MOE),
    (r"--(mtp-)", "P", "model", "comes with the extra prediction heads"),
    (r"--(multi-latent|q-lora|kv-lora|qk-head|qk-pos|v-head|rotary-scaling|mscale|cache-mla|mla-|rope-type)",
     "P", "model", "comes with multi-latent attention"),
    (r"--(mamba|gdp-|linear-|experimental-attention|dsa-|no-dsa|hybrid-layer|enable-mhc|mhc-)", "P", "model", HYBRID),
    (r"--(yarn|no-yarn|mrope|rope-scaling|use-rope-scaling|no-rope-freq|rotary-seq|rotary-interleaved|relative-att)",
     "P", "model", "comes with the other position embeddings"),
    (r"--(qk-|softmax-type|attention-output-gate|window-)", "P", "model", "comes with the further forms of attention"),
    (r"--(squared-relu|quick-geglu|glu-linear|activation-func)", "P", "model",
     "comes with the further activations; there are tanh-GELU and --swiglu"),
    (r"--(use-mup|mup-)", "P", "model", "comes with maximal update parametrisation"),
    (r"--apply-layernorm-1p$", "P", "model", "comes with the further normalisations"),
    (r"--embedding-init", "P", "model", INITIALISATION),
    (r"--(recompute|distribute-saved|cpu-offloading|fine-grained|offload|min-offloaded|delay-offload|delta-offload"
     r"|activation-offload|mlp-chunks)", "P", "training", RECOMPUTE),
    (r"--(hierarchical-context|hybrid-context|max-seqlen-per|cp-comm)", "P", "parallel",
     "comes with context parallelism"),
    (r"--.*(fsdp|sharding-strategy|hsdp|num-distributed-optimizer)|--init-model-with-meta", "P", "parallel", FSDP),
    (r"--(tp-comm|no-tp-comm|defer-embedding|wgrad-def)", "P", "parallel", "comes with overlapped tensor parallelism"),
    (r"--(num-layers-per-virtual|num-virtual|microbatch-group|no-overlap-p2p|overlap-p2p|account-for"
     r"|decoder-(first|last)|pipeline-model-parallel-(layout|comm))", "P", "parallel", PIPELINE),
    (r"--(encoder|decoder|bert-no|vocab-extra|mask-prob|short-seq|apply-residual)", "P", "model",
     "comes with BERT and T5"),
    (r"--(cuda-graph)", "P", "training", "comes with graph capture"),
    (r"--(fim-|sft)", "P", "data", "comes with the other datasets"),
    (r"--(optimizer-|overlap-cpu-optimizer|use-torch-optimizer|no-pin-cpu)", "P", "optimizer",
     "comes with optimizer offload"),
    (r"--(profile|nvtx|log-straggler|straggler|disable-straggler)", "P", "logging", "comes with profiling"),
    (r"--(logits-)", "P", "training", DISTILLATION),
    (r"--(error-injection|result-rejected|check-weight-hash|gpu-sniff|inprocess|fault-injector)", "P", "training",
     "comes with fault handling"),
    (r"--test-mode$", "P", "training", "comes with the serving engine; see `pentatron generate`"),
]

# Group of the JSON file -> (class, topic, reason) when no rule matches.
GROUPS = {
    "biencoder": ("N", "legacy", "Megatron removed the code behind it (retrieval models); drop it"),
    "vision": ("N", "legacy", "Megatron removed the code behind it (vision pretraining); drop it"),
    "tokenizer": ("P", "data", "comes with the other tokenizers"),
    "RNG and initialization": ("P", "model", INITIALISATION),
    "heterogeneous architecture": ("P", "model", "comes with heterogeneous layers"),
}

KINDS = {"int": "kInt", "float": "kFloat", "string": "kString", "switch on": "kSwitchOn", "switch off": "kSwitchOff",
         "on/off pair": "kSwitchPair"}


used = set()


def classify(row):
    for pattern, option_class, topic, reason in RULES:
        if re.match(pattern, row["names"][0]):
            used.add(pattern)
            return option_class, topic, reason
    if row["group"] not in GROUPS:
        raise SystemExit(f"no rule for {row['names'][0]} of group {row['group']}")
    used.add(row["group"])
    return GROUPS[row["group"]]


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def emit(row):
    option_class, topic, reason = classify(row)
    parts = [f".names = {quoted(' '.join(row['names']))}", f".dest = {quoted(row['dest'])}",
             f".kind = OptionKind::{KINDS.get(row['kind'], 'kString')}"]
    if "nargs" in row:
        parts.append(f".nargs = '{row['nargs']}'")
    if row["default"] is not None:
        parts.append(f".default_repr = {quoted(repr(row['default']))}")
    if "choices" in row:
        parts.append(f".choices = {quoted('|'.join(str(c) for c in row['choices']))}")
    parts.append(f".topic = Topic::k{'Rl' if topic == 'rl' else topic.capitalize()}")
    parts.append(f".option_class = OptionClass::{'kPlanned' if option_class == 'P' else 'kNever'}")
    parts.append(f".reason = {quoted(reason)}")
    return "    {" + ", ".join(parts) + "},"


def main():
    rows = json.loads((CONFIG / "testdata" / "megatron_options.json").read_text())
    by_hand = set()
    for path in sorted(CONFIG.glob("*_options.cc")):
        for names in re.findall(r'\.names\s*=\s*((?:"[^"]*"\s*)+)', path.read_text()):
            by_hand.update("".join(re.findall(r'"([^"]*)"', names)).split())
    rest = [row for row in rows if not by_hand & set(row["names"])]
    rest.sort(key=lambda row: (classify(row)[1], rows.index(row)))
    idle = [rule for rule in [pattern for pattern, *_ in RULES] + list(GROUPS) if rule not in used]
    if idle:
        raise SystemExit(f"rules that decide no row: {', '.join(idle)}")
    for old in CONFIG.glob("known_options_*.cc"):
        old.unlink()
    chunks = [rest[i:i + ROWS_PER_FILE] for i in range(0, len(rest), ROWS_PER_FILE)]
    written = []
    for number, chunk in enumerate(chunks, 1):
        text = ["// SPDX-License-Identifier: Apache-2.0",
                "// Written by tools/gen_known_options.py; change the rules there.",
                '#include "pentatron/config/option_table.h"', "", "namespace pentatron::config {", "namespace {", "",
                "constexpr OptionSpec kRows[] = {", *map(emit, chunk), "};", "", "}  // namespace", "",
                f"std::span<const OptionSpec> known_options_{number}() {{ return kRows; }}", "",
                "}  // namespace pentatron::config", ""]
        written.append(CONFIG / f"known_options_{number}.cc")
        written[-1].write_text("\n".join(text))
    table = ["// SPDX-License-Identifier: Apache-2.0", "// Written by tools/gen_known_options.py.", "#pragma once", "",
             "#include <span>", "", '#include "pentatron/config/option_table.h"', "",
             "namespace pentatron::config {", "",
             *[f"[[nodiscard]] std::span<const OptionSpec> known_options_{n}();"
               for n in range(1, len(chunks) + 1)], "",
             "inline constexpr std::span<const OptionSpec> (*kKnownOptionTables[])() = {"
             + ", ".join(f"known_options_{n}" for n in range(1, len(chunks) + 1)) + "};", "",
             "}  // namespace pentatron::config", ""]
    written.append(CONFIG / "known_options.h")
    written[-1].write_text("\n".join(table))
    subprocess.run(["clang-format", "-i", *map(str, written)], check=True)
    print(f"{len(by_hand)} spellings by hand, {len(rest)} rows written to {len(chunks)} files")


if __name__ == "__main__":
    main()

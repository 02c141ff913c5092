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

# (pattern over the first spelling, class, topic, reason). Class P: planned, N: never.
RULES = [
    # Deprecated spellings and dead switches.
    (r"--batch-size$", "N", "training", "removed spelling; use --micro-batch-size"),
    (r"--warmup$", "N", "optimizer", "removed spelling; use --lr-warmup-fraction or --lr-warmup-iters"),
    (r"--model-parallel-size$", "N", "parallel", "removed spelling; use --tensor-model-parallel-size"),
    (r"--checkpoint-activations$", "N", "training", "removed spelling; activation recompute is planned as "
     "--recompute-granularity"),
    (r"--rampup-batch-size$", "N", "training", "Megatron parses it and ignores it; set --global-batch-size"),
    (r"--use-rotary-position-embeddings$", "N", "model", "deprecated; use --position-embedding-type rope"),
    (r"--no-position-embedding$", "N", "model", "deprecated; use --position-embedding-type none"),
    (r"--moe-enable-deepep$", "N", "moe", "deprecated spelling of a flex dispatcher backend; drop it"),
    (r"--moe-layer-recompute$", "N", "moe", "deprecated spelling of --recompute-modules moe; drop it"),
    (r"--moe-(deepep|hybridep)-num-sms|--moe-hybridep|--moe-ncclep|--moe-permute-fusion-into|--moe-flex",
     "N", "moe", "tunes DeepEP, HybridEP or NCCL EP, libraries that are not used here; drop it"),
    (r"--moe-router-padding-for-fp8$", "N", "moe", "deprecated spelling of --moe-router-padding-for-quantization"),
    (r"--(enable|external)-cuda-graph$|--cuda-graph-scope$", "N", "training",
     "deprecated; graph capture is planned as --cuda-graph-impl"),
    (r"--dist-ckpt-format$", "N", "checkpoint", "deprecated and without effect in Megatron; there is one format here"),
    (r"--lazy-mpu-init$", "N", "parallel", "dead switch of an old initialisation order; drop it"),
    (r"--onnx-safe$", "N", "model", "workaround for an exporter of long ago; drop it"),
    (r"--disable-msc$|--enable-msc$", "N", "data", "the multi-storage client is a Python package; mount the storage"),
    (r"--use-legacy-static-engine$", "N", "inference", "an engine Megatron keeps for old scripts; drop it"),
    (r"--is-hybrid-model$|--hybrid-override-pattern$", "N", "model", "deprecated; hybrids are planned as "
     "--hybrid-layer-pattern"),
    (r"--disable-mamba-mem-eff-path$", "N", "model", "picks a slower kernel of another library; drop it"),
    (r"--manual-gc-interval$|--no-manual-gc-eval$", "N", "training", "there is no Python garbage collector; drop it"),
    # Python in the loop.
    (r"--spec$", "N", "model", "names a Python module; models are built from options here"),
    (r"--trust-remote-code$", "N", "data", "no code is ever run from data; drop it"),
    (r"--(fp8|fp4)-quantizer-factory$|--te-precision-config-file$", "N", "precision",
     "names Python code or a recipe of TransformerEngine; use the planned --fp8-recipe"),
    (r"--use-kitchen-attention$|--kitchen-", "N", "precision", "a research quantiser outside Megatron; drop it"),
    (r"--use-te-activation-func$|--use-transformer-engine-op-fuser$|--fused-residual-rmsnorm$", "N", "model",
     "picks a kernel of TransformerEngine; kernels are chosen here by shape; drop it"),
    (r"--no-(persist-layer-norm|masked-softmax-fusion|bias-swiglu-fusion|bias-dropout-fusion|rope-fusion"
     r"|gradient-accumulation-fusion)$", "N", "model",
     "asks for an unfused kernel; results are the same and there is one path; drop it"),
    (r"--no-bias-gelu-fusion$", "P", "model", "switches Megatron to the erf form of GELU, which is planned; the tanh "
     "form is used"),
    (r"--no-clone-scatter-output-in-embedding$|--use-ring-exchange-p2p$", "N", "parallel",
     "works around a memory or network detail that is absent here; drop it"),
    (r"--use-torch-fsdp2$|--torch-fsdp2", "N", "parallel", "drives a Python wrapper of PyTorch; fully sharded data "
     "parallelism is planned as --use-megatron-fsdp"),
    (r"--no-use-layer-wise-param-layout$", "P", "optimizer", "comes with the matrix-wise optimizers"),
    (r"--(tokenizer-hf|chat-template|use-gigatoken)", "P", "data", "comes with the other tokenizers"),
    (r"--wandb|--otel|--no-one-logger$|--one-logger|--app-tag", "N", "logging",
     "a logging service with its own client; use --metrics-file"),
    (r"--adlr-autoresume", "N", "training", "belongs to one site's scheduler; use --exit-duration-in-mins"),
    (r"--(enable-ft-package|calc-ft-timeouts|ft-num)", "N", "training",
     "drives a Python package; a run restarts from its last checkpoint by --load"),
    (r"--(async-strategy|use-persistent-ckpt-worker|async-ckpt-)", "N", "checkpoint",
     "tunes Megatron's background Python processes; drop it"),
    (r"--dist-ckpt-(save-pre|strictness)|--ckpt-assume-constant|--ckpt-pg-tensors|--ckpt-fully-parallel-load-(ex|per)"
     r"|--ckpt-drop-redundant|--dist-ckpt-workers|--ckpt-convert-update|--no-strict-fsdp|--no-ckpt-load-validate"
     r"|--no-ckpt-fully-parallel-save|--ckpt-fully-parallel-(save|load)-process-group|--distrib-optim-fully"
     r"|--load-main-params-from-ckpt", "N", "checkpoint",
     "tunes the reader or writer of Megatron's own format; drop it"),
    (r"--(memory-snapshot-path|record-memory-history|use-pytorch-profiler|pytorch-profiler|record-shapes)", "N",
     "logging", "drives PyTorch's Python profiler; profiling is planned as --profile"),
    (r"--run-workload-inspector-server$", "N", "logging", "a Python service; drop it"),
    (r"--tp-comm-bootstrap-backend$|--tp-comm-overlap-cfg$", "N", "parallel",
     "configures TransformerEngine's user buffers; overlap is planned as --tp-comm-overlap"),
    (r"--config-logger-dir$|--dump-param-to-param-group-map$|--logging-level$", "N", "logging",
     "dumps Python objects or sets a Python logger; `pentatron checkpoint inspect` shows the parameters"),
    (r"--use-tp-pp-dp-mapping$", "P", "parallel", "another order of the rank grid's axes"),
    (r"--enable-experimental$", "N", "run", "an option either works here or is refused; drop it"),
    (r"--fake-process-group$", "N", "parallel", "use --distributed-backend fake with --world-size and --rank"),
    (r"--no-pad-vocab-size$", "P", "model", "the padded size is set by --padded-vocab-size or by rounding up"),
    (r"--no-initialization$", "P", "model", "weights without initial values only make sense before a full load"),
    (r"--init-model-with-meta-device$", "P", "model", "comes with fully sharded data parallelism"),
    (r"--data-parallel-random-init$", "N", "model",
     "initial values are a function of seed and name, equal on all replicas"),
    (r"--apply-query-key-layer-scaling$|--fp16-lm-cross-entropy$", "N", "precision",
     "a rescue for fp16; scores and loss are computed in fp32 here"),
    (r"--disable-symmetric-registration$|--use-nccl-ub$|--.*nccl-ub$|--fsdp-manual-registration$"
     r"|--fsdp-db-use|--create-all-gather-group$|--use-sharp$|--sharp-enabled-group$|--suggested-communication",
     "P", "parallel", "comes with the GPU collectives"),
    # Families.
    (r"--fp16$", "P", "precision", "fp16 and its loss scale come with the low precisions; use --bf16"),
    (r"--(fp8|fp4|no-fp8|first-last-layers|num-layers-at|.*mxfp8|.*-dtype$|keep-fp8|use-precision-aware"
     r"|grad-reduce-in-bf16|.*loss-scale|loss-scale|hysteresis|disable-bf16-reduced|output-logit)",
     "P", "precision", "comes with the low precisions and the precision-aware state"),
    (r"--(muon|lion)", "P", "optimizer", "comes with the other optimizers"),
    (r"--(rl-|grpo-|langrl|perform-rl|refit-method)", "P", "rl", "comes with reinforcement learning"),
    (r"--(inference-|mamba-inference|flash-decode|decode-only|enable-chunked|num-speculative|nccl-all-reduce-for"
     r"|max-tokens-to-oom|batch-invariant|symmetric-ar|output-bert|bert-embedder|use-same-sampling"
     r"|mlp-chunks-for-prefill)", "P", "inference", "comes with the serving engine; see `pentatron generate`"),
    (r"--(moe-|num-experts|gtp-remat-opt|expert-|overlap-moe|overlap-dispatch|ep-overlap|delay-wgrad|high-priority-a2a"
     r"|use-grouped-gemm|.*upcycling)", "P", "moe", "comes with mixture of experts"),
    (r"--(mtp-)", "P", "model", "comes with the extra prediction heads"),
    (r"--(multi-latent|q-lora|kv-lora|qk-head|qk-pos|v-head|rotary-scaling|mscale|cache-mla|mla-|rope-type)",
     "P", "model", "comes with multi-latent attention"),
    (r"--(mamba|gdp-|linear-|experimental-attention|dsa-|no-dsa|hybrid-layer|enable-mhc|mhc-)", "P", "model",
     "comes with the hybrid and sparse attention models"),
    (r"--(yarn|no-yarn|mrope|rope-scaling|use-rope-scaling|no-rope-freq|rotary-seq|rotary-interleaved|relative-att)",
     "P", "model", "comes with the other position embeddings"),
    (r"--(recompute|distribute-saved|cpu-offloading|fine-grained|offload|min-offloaded|delay-offload|delta-offload"
     r"|activation-offload|empty-unused)", "P", "training", "comes with activation recompute and offload"),
    (r"--(hierarchical-context|hybrid-context|max-seqlen-per|cp-comm)", "P", "parallel",
     "comes with context parallelism"),
    (r"--.*(fsdp|sharding-strategy|hsdp|num-distributed-optimizer)", "P", "parallel",
     "comes with fully sharded data parallelism"),
    (r"--(ddp-|overlap-|no-align|check-for-large|gtp-|no-gradient-reduce|tensor-parallel-num|.*num-weight-shards)",
     "P", "parallel", "comes with overlapped and tuned gradient communication"),
    (r"--(tp-comm|no-tp-comm|defer-embedding|wgrad-def)", "P", "parallel", "comes with overlapped tensor parallelism"),
    (r"--(num-layers-per-virtual|num-virtual|microbatch-group|no-overlap-p2p|account-for|decoder-(first|last)"
     r"|pipeline-model-parallel-(layout|comm)|mtp-standalone)", "P", "parallel",
     "comes with the interleaved and uneven pipeline schedules"),
    (r"--(encoder|decoder|bert-no|vocab-extra|mask-prob|short-seq|sample-rate|apply-residual)", "P", "model",
     "comes with BERT and T5"),
    (r"--(cuda-graph|te-rng)", "P", "training", "comes with graph capture"),
    (r"--(fim-|sft)", "P", "data", "comes with the other datasets"),
    (r"--(optimizer-|use-torch-optimizer|no-pin-cpu)", "P", "optimizer", "comes with optimizer offload"),
    (r"--(profile|nvtx|log-straggler|straggler|disable-straggler)", "P", "logging", "comes with profiling"),
    (r"--(logits-)", "P", "training", "comes with distillation"),
    (r"--(rerun|error-injection|result-rejected|check-for-spiky|check-weight-hash|gpu-sniff|inprocess|fault-injector)",
     "P", "training", "comes with fault handling"),
    (r"--(eval-|start-eval|full-validation|multiple-val|validation-set|test-mode)", "P", "training",
     "comes with the further forms of evaluation"),
    (r"--(step-batch|decrease-batch|iterations-to-skip|phase-transition|train-sync)", "P", "training",
     "comes with the batch-size schedules"),
]

# Group of the JSON file -> (class, topic, reason) when no rule matches.
GROUPS = {
    "biencoder": ("N", "legacy", "Megatron removed the code behind it (retrieval models); drop it"),
    "vision": ("N", "legacy", "Megatron removed the code behind it (vision pretraining); drop it"),
    "transformer configuration": ("P", "model", "comes with the further model families"),
    "network size": ("P", "model", "comes with the further model families"),
    "regularization": ("P", "optimizer", "comes with the other optimizers"),
    "training": ("P", "training", "comes with the further training options"),
    "checkpointing": ("P", "checkpoint", "comes with the further checkpoint options"),
    "distributed init": ("P", "parallel", "comes with the further communication options"),
    "data and dataloader": ("P", "data", "comes with the further data options"),
    "tokenizer": ("P", "data", "comes with the other tokenizers"),
    "logging": ("P", "logging", "comes with the further logs; see --metrics-file"),
    "learning rate and weight decay": ("P", "optimizer", "comes with the further schedules"),
    "RNG and initialization": ("P", "model", "comes with the further initialisations"),
    "heterogeneous architecture": ("P", "model", "comes with heterogeneous layers"),
    "ft_package": ("N", "training", "drives a Python package; a run restarts from its last checkpoint by --load"),
    "mixed precision": ("P", "precision", "comes with the low precisions"),
}

KINDS = {"int": "kInt", "float": "kFloat", "string": "kString", "switch on": "kSwitchOn", "switch off": "kSwitchOff",
         "on/off pair": "kSwitchPair"}


def classify(row):
    for pattern, option_class, topic, reason in RULES:
        if re.match(pattern, row["names"][0]):
            return option_class, topic, reason
    if row["group"] not in GROUPS:
        raise SystemExit(f"no rule for {row['names'][0]} of group {row['group']}")
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

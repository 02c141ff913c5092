#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The options of Megatron-LM's example of a GPT-3 of 345 million parameters on one node of eight GPUs.
# Usage: gpt3_345m.sh PROGRAM [more words]; DATA, CHECKPOINTS, VOCAB and MERGES come from the environment.
program="$1"
shift
exec "$program" pretrain_gpt \
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
  --seq-length 1024 --max-position-embeddings 1024 \
  --micro-batch-size 8 --global-batch-size 64 \
  --train-iters 500000 --lr-decay-iters 320000 \
  --lr 0.00015 --min-lr 1.0e-5 --lr-decay-style cosine --lr-warmup-fraction .01 \
  --weight-decay 1e-2 --clip-grad 1.0 --fp16 --checkpoint-activations \
  --data-path "$DATA" --vocab-file "$VOCAB" --merge-file "$MERGES" --data-impl mmap --split 949,50,1 \
  --save "$CHECKPOINTS" --load "$CHECKPOINTS" --save-interval 10000 \
  --log-interval 100 --eval-interval 1000 --eval-iters 10 --distributed-backend nccl "$@"

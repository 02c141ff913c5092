#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The options of a user's own script: a 7B of the Llama 2 kind on eight GPUs, Megatron's names mixed with names of the user's fork.
# Usage: user_llama2_7b.sh PROGRAM [more words]; DATA, TOKENIZER, CHECKPOINTS and LOGS come from the environment.
program="$1"
shift
exec "$program" pretrain_gpt \
  --no-load-optim --finetune \
  --optimizer adam --adam-beta1 0.9 --adam-beta2 0.99 --adam-eps 1e-8 --lr 1e-3 --min-lr 1e-6 --lr-decay-style cosine \
  --lr-decay-iters 9450 --lr-warmup-iters 1050 --clip-grad 1.0 --weight-decay 0. \
  --recompute-activations --bf16 --transformer-impl transformer_engine --use-distributed-optimizer --use-flash-attn \
  --group-query-attention --num-query-groups 4 \
  --data-path "$DATA" --valid-path "$DATA" --split 1000,0,0 --dataloader-type external \
  --micro-batch-size 4 --global-batch-size 64 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --seq-length 2048 \
  --max-position-embeddings 4096 --train-iters 10000 --save "$CHECKPOINTS" --load "$CHECKPOINTS" \
  --tokenizer-model "$TOKENIZER" --tokenizer-type HuggingFaceTokenizer --make-vocab-size-divisible-by 4 \
  --distributed-backend nccl --log-interval 1 --save-interval 500 --ckpt-format torch --eval-interval 1000 --eval-iters 10 \
  --seed 42 --attention-dropout 0 --hidden-dropout 0 --rotary-base 5000000 --use-rotary-position-embeddings \
  --untie-embeddings-and-output-weights --distributed-timeout-minutes 1 --swiglu --normalization RMSNorm \
  --disable-bias-linear --use-mcore-models --no-rope-fusion --tensorboard-dir "$LOGS" --tensorboard-queue-size 5 \
  --log-timers-to-tensorboard --log-validation-ppl-to-tensorboard "$@"

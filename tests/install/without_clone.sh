#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The second half of install_test.sh, run in a mount namespace of its own: without_clone.sh ROOT BUILD DEPS WORK.
root="$1" build="$2" deps="$3" work="$4"
cd "$work"
for folder in "$deps" "$build" "$root"; do mount -t tmpfs none "$folder"; done
[ ! -e "$root/README.md" ] && [ ! -e "$deps/site" ] && [ ! -e "$build/bin" ] || { echo "error: the clone is still there" >&2; exit 1; }
export LD_LIBRARY_PATH=''
"$work/prefix/bin/pentatron" version
"$work/prefix/bin/pentatron" doctor >"$work/doctor.log" || { cat "$work/doctor.log"; exit 1; }
# The monitor library is installed too.
printf '%s\n' '{"kind":"train","iteration":1,"lm_loss":2.5}' '{"kind":"train","iteration":2,"lm_loss":2.0}' >"$work/metrics.jsonl"
(cd "$work/hostile" && "$work/prefix/bin/pentatron" plot "$work/metrics.jsonl" --output "$work/loss.svg")
[ -s "$work/loss.svg" ] || { echo "error: the installed plot drew nothing" >&2; exit 1; }
"$work/prefix/bin/pentatron" watch "$work" --port 0 >"$work/watch.log" &
watch=$!
for _ in $(seq 100); do grep -q 'http://' "$work/watch.log" && break; sleep 0.1; done
port="$(sed -n 's|.*http://127.0.0.1:\([0-9]*\)/.*|\1|p' "$work/watch.log")"
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET / HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$port" >&3
grep -q '<title>pentatron watch</title>' <&3 || { echo "error: the installed page is not served" >&2; exit 1; }
exec 3<&-
kill "$watch"
wait "$watch" || true
# What a shell and man find by themselves.
for file in share/man/man1/pentatron.1 share/bash-completion/completions/pentatron share/zsh/site-functions/_pentatron \
  share/fish/vendor_completions.d/pentatron.fish; do
  [ -s "$work/prefix/$file" ] || { echo "error: $file is not installed" >&2; exit 1; }
done
# A run of the program itself.
"$work/prefix/bin/pentatron" pretrain_gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 \
  --mock-data --tokenizer-type NullTokenizer --vocab-size 63 --micro-batch-size 2 --train-iters 4 --eval-iters 0 --lr 1e-3 \
  --save "$work/saved" --save-interval 2 >"$work/train.log" 2>&1 || { cat "$work/train.log"; exit 1; }
"$work/prefix/bin/pentatron" checkpoint verify "$work/saved"
cmake -S "$work/examples" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
# Half of a run, the rest of it, and the same at one go.
loop="$work/build/simple_training_loop"
"$loop" "$work/LICENSE" 60 | tee "$work/loop.log" | tail -3
awk '/^step 1 /{first=$4} /^step /{last=$4; n++} END {exit !(n == 60 && last < 0.8 * first)}' "$work/loop.log" ||
  { echo "error: the loss did not fall" >&2; exit 1; }
"$loop" "$work/LICENSE" 30 "$work/bytes" >"$work/half.log"
"$loop" "$work/LICENSE" 60 "$work/bytes" >"$work/rest.log"
if [ "$(grep -ah '^step' "$work/half.log" "$work/rest.log")" != "$(grep -ah '^step' "$work/loop.log")" ]; then
  echo "error: the resumed loop differs from the uninterrupted one" >&2
  exit 1
fi
# Two processes share each batch.
OMP_NUM_THREADS=1 "$work/prefix/bin/pentatron" launch --nproc-per-node 2 "$loop" "$work/LICENSE" 5 >"$work/two.log"
awk 'FNR == NR {if (/^step/) one[$2] = $4; next} /^step/ {d = $4 / one[$2] - 1; if (d < 0) d = -d; if (d > 1e-4) exit 1; n++}
  END {exit n != 5}' "$work/loop.log" "$work/two.log" || { cat "$work/two.log"; echo "error: two processes differ from one" >&2; exit 1; }
"$work/build/custom_layer" 30
# A torch folder that is not there is refused with the remedy, not found silently elsewhere.
if cmake -S "$work/examples" -B "$work/wrong" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DPENTATRON_TORCH_ROOT=/nonexistent \
  >"$work/wrong.log" 2>&1 || ! grep -q PENTATRON_TORCH_ROOT "$work/wrong.log"; then
  echo "error: a wrong PENTATRON_TORCH_ROOT was not refused" >&2
  exit 1
fi

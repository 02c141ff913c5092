#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# launchers_test.sh PROGRAM slurm|mpirun|kubernetes|torchrun|launch: the launchers themselves, over two nodes where they can, give the losses
# of one process. `torchrun` needs TORCHRUN_PYTHON, a python that has torch.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
program="$(realpath "$1")"
part="$2"
if [ -z "${LAUNCHERS_WORK:-}" ]; then
  LAUNCHERS_WORK="$(mktemp -d)"
  trap 'rm -rf "$LAUNCHERS_WORK"' EXIT
  export LAUNCHERS_WORK
  export OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=-1
  SLURM=$([ "$part" = slurm ] && echo 1 || true) "$(dirname "$0")/two_nodes.sh" "$0" "$@"
  exit
fi
cd "$LAUNCHERS_WORK"
cat >run.yaml <<'YAML'
num-layers: 2
hidden-size: 32
num-attention-heads: 4
seq-length: 16
max-position-embeddings: 16
mock-data: true
tokenizer-type: NullTokenizer
vocab-size: 63
micro-batch-size: 2
global-batch-size: 8
train-iters: 4
eval-iters: 0
log-interval: 1
lr: 0.01
cpu-threads-per-rank: 1
distributed-timeout-minutes: 1
YAML
"$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file one.jsonl >one.log

# same FILE STEPS: the last STEPS losses are those of one process.
same() {
  python3 - "$1" "$2" <<'PY' || { echo "error: $1 differs from one process" >&2; exit 1; }
import json, sys
read = lambda name: [v["lm_loss"] for v in map(json.loads, open(name)) if v.get("kind") == "train"]
mine, one, steps = read(sys.argv[1]), read("one.jsonl"), int(sys.argv[2])
print(sys.argv[1], mine)
assert len(mine) == steps and len(one) == 4, (mine, one)
assert all(abs(a / b - 1) < 1e-5 for a, b in zip(mine, one[-steps:])), (mine, one)
PY
}

slurm() {
  # The example, half of a run and the rest, on two nodes with two ranks each.
  export PENTATRON="$program"
  for options in "--exit-interval 2" ""; do
    # shellcheck disable=SC2086
    job="$(sbatch --parsable --nodes 2 --ntasks-per-node 2 --time 5 "$root/examples/slurm/pretrain.sbatch" run.yaml checkpoints \
      --save-interval 100 --tensor-model-parallel-size 2 --metrics-file slurm.jsonl $options)"
    for _ in $(seq 480); do squeue -h -j "$job" 2>/dev/null | grep -q . || break; sleep 0.25; done
    scontrol show job "$job" | grep -q JobState=COMPLETED || { scontrol show job "$job"; cat pentatron_*.log; exit 1; }
  done
  same slurm.jsonl 4
  # The ranks were on both nodes.
  grep -q 'world size 4' pentatron_*.log
  # A plain srun from a machine that no rank runs on, without MASTER_ADDR.
  srun --nodes 2 --ntasks-per-node 1 "$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file srun.jsonl >srun.log || { cat srun.log; exit 1; }
  same srun.jsonl 4
  # One node: on loopback.
  srun --nodes 1 --ntasks 2 "$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file srun1.jsonl >srun1.log || { cat srun1.log; exit 1; }
  same srun1.jsonl 4
  # SIGTERM saves, and the job waits for its next turn.
  sed 's/^train-iters: .*/train-iters: 100000/' run.yaml >long.yaml
  job="$(sbatch --parsable --nodes 2 --ntasks-per-node 1 --output long.log "$root/examples/slurm/pretrain.sbatch" long.yaml long --save-interval 100000)"
  for _ in $(seq 240); do grep -qs 'iteration       10/' long.log && break; sleep 0.25; done
  scancel --signal=TERM "$job"
  for _ in $(seq 240); do [ -s long/latest_checkpointed_iteration.txt ] && break; sleep 0.25; done
  [ -s long/latest_checkpointed_iteration.txt ] || { cat long.log; echo "error: SIGTERM did not save" >&2; exit 1; }
  for _ in $(seq 120); do scontrol show job "$job" | grep -q 'Restarts=1' && break; sleep 0.25; done
  scontrol show job "$job" | grep -q 'Restarts=1' || { scontrol show job "$job"; cat long.log; echo "error: the job was not requeued" >&2; exit 1; }
  scancel "$job"
}

mpirun_part() {
  mpirun --allow-run-as-root --oversubscribe -np 2 "$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file mpi.jsonl >mpi.log || { cat mpi.log; exit 1; }
  same mpi.jsonl 4
  # Two nodes: mpirun's remote shell is the namespace's.
  printf 'node1 slots=1\nnode2 slots=1\n' >hosts
  printf '#!/bin/sh\nnode="$1"; shift\nexec on_node "$node" sh -c "$*"\n' >agent
  chmod +x agent
  mpirun --allow-run-as-root --hostfile hosts --mca plm_rsh_agent "$PWD/agent" --mca oob_tcp_if_include 10.77.0.0/24 -np 2 \
    -x MASTER_ADDR=node1 "$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file mpi2.jsonl >mpi2.log || { cat mpi2.log; exit 1; }
  same mpi2.jsonl 4
}

# As a PyTorchJob of Kubernetes sets them: one rank a pod, the first pod by its name.
kubernetes() {
  for rank in 0 1; do
    on_node "node$((rank + 1))" env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=node1 MASTER_PORT=23456 PENTATRON_JOB_TOKEN=a-secret \
      "$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file pods.jsonl >pod$rank.log 2>&1 &
    pids[rank]=$!
  done
  for rank in 0 1; do wait "${pids[$rank]}" || { cat pod*.log; exit 1; }; done
  same pods.jsonl 4
}

torchrun() {
  for rank in 0 1; do
    on_node "node$((rank + 1))" "$TORCHRUN_PYTHON" -m torch.distributed.run --no-python --nnodes 2 --node_rank $rank --nproc_per_node 2 \
      --rdzv_backend c10d --rdzv_endpoint node1:29400 --rdzv_id job7 --local_addr "node$((rank + 1))" \
      "$program" pretrain_gpt --yaml-cfg run.yaml --tensor-model-parallel-size 2 --metrics-file torchrun.jsonl >agent$rank.log 2>&1 &
    pids[rank]=$!
  done
  for rank in 0 1; do wait "${pids[$rank]}" || { cat agent*.log; exit 1; }; done
  same torchrun.jsonl 4
  # Static: the agents' store is the ranks' too.
  "$TORCHRUN_PYTHON" -m torch.distributed.run --no-python --nproc_per_node 2 --master_port 29577 \
    "$program" pretrain_gpt --yaml-cfg run.yaml --metrics-file static.jsonl >static.log 2>&1 || { cat static.log; exit 1; }
  same static.jsonl 4
}

# `pentatron launch` itself, once on each node, and what can go wrong between them.
launch_part() {
  export PENTATRON_JOB_TOKEN=a-secret
  # node NUMBER LOG WORDS ...: the launcher of one node in the background; its number goes to pids.
  node() {
    local number="$1" log="$2"
    shift 2
    on_node "node$((number + 1))" "$program" launch --nnodes 2 --node-rank "$number" --rdzv-endpoint "node1:$port" "$@" >"$log" 2>&1 &
    pids[number]=$!
  }
  # ends NUMBER CODES: the node's launcher ends with one of the codes.
  ends() {
    local code=0
    wait "${pids[$1]}" || code=$?
    [[ " $2 " == *" $code "* ]] || { cat launch*.log; echo "error: node $1 ended with $code, not $2" >&2; exit 1; }
  }
  # says FILE TEXT
  says() { grep -qF -- "$2" "$1" || { cat "$1"; echo "error: $1 does not say: $2" >&2; exit 1; }; }
  # No rank of a former part lives on.
  no_orphans() {
    for _ in $(seq 40); do pgrep -f "pretrain_gpt --yaml-cfg" >/dev/null || return 0; sleep 0.05; done
    pgrep -af "pretrain_gpt --yaml-cfg"
    echo "error: ranks outlived their launchers" >&2
    exit 1
  }
  run=(pretrain_gpt --yaml-cfg run.yaml --metrics-file launch.jsonl)

  echo "launch: a run that ends well"
  port=23601
  for n in 0 1; do node $n launch$n.log --nproc-per-node 2 "${run[@]}" --tensor-model-parallel-size 2; done
  for n in 0 1; do ends $n 0; done
  same launch.jsonl 4
  no_orphans

  echo "launch: a rank of the second node dies"
  port=23602
  sed 's/^train-iters: .*/train-iters: 1000000/' run.yaml >long.yaml
  for n in 0 1; do node $n launch$n.log --nproc-per-node 2 pretrain_gpt --yaml-cfg long.yaml; done
  for _ in $(seq 240); do grep -qs 'iteration       10/' launch1.log && break; sleep 0.25; done
  # Of all that carry the command line, ranks alone have a RANK.
  victim="$(for pid in $(pgrep -f "pretrain_gpt --yaml-cfg long.yaml"); do
    if tr "\\0" "\\n" <"/proc/$pid/environ" | grep -qx RANK=3; then echo "$pid"; fi; done)"
  # What it costs here and now that as many processes start and end.
  begin="$(date +%s%N)"
  "$program" launch --nproc-per-node 4 "$program" pretrain_gpt --yaml-cfg run.yaml --world-size 1 --distributed-backend threads --check-options >check.log 2>&1 || true
  cost=$((($(date +%s%N) - begin) / 1000000))
  begin="$(date +%s%N)"
  kill -KILL "$victim"
  ends 1 137
  ends 0 "3 6 137"
  took=$((($(date +%s%N) - begin) / 1000000))
  echo "launch: both launchers ended $took ms after the rank; to start and end four processes takes $cost ms"
  [ "$took" -lt $((2000 + cost)) ] || { cat launch*.log; echo "error: more than two seconds" >&2; exit 1; }
  says launch1.log "rank 3 (pid $victim) was ended by signal 9"
  says launch1.log "its last lines:"
  for n in 0 1; do
    [ "$(grep -c 'launch: rank' launch$n.log)" = 1 ] || { cat launch$n.log; echo "error: not one message on node $n" >&2; exit 1; }
  done
  says launch0.log "rank 3 was ended by signal 9"
  no_orphans

  echo "launch: the port is taken"
  port=23603
  on_node node1 python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_INET6); s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); s.bind(("", int(sys.argv[1]))); s.listen(); time.sleep(60)' $port &
  holder=$!
  sleep 1
  node 0 launch0.log --nproc-per-node 1 "${run[@]}"
  ends 0 6
  says launch0.log "port $port"
  says launch0.log "--master-port"
  kill $holder
  wait $holder || true

  echo "launch: nodes that expect worlds of other sizes"
  port=23604
  sizes=(--micro-batch-size 1 --global-batch-size 12)  # divides by the ranks of both
  node 0 launch0.log --nproc-per-node 2 "${run[@]}" "${sizes[@]}"
  node 1 launch1.log --nproc-per-node 3 "${run[@]}" "${sizes[@]}"
  for n in 0 1; do ends $n 6; done
  cat launch0.log launch1.log >launch_both.log
  says launch_both.log "expects a world of"
  says launch_both.log "WORLD_SIZE"
  no_orphans

  echo "launch: nodes with other options"
  port=23605
  node 0 launch0.log --nproc-per-node 1 "${run[@]}"
  node 1 launch1.log --nproc-per-node 1 "${run[@]}" --lr 0.02
  for n in 0 1; do ends $n 2; done
  for n in 0 1; do says launch$n.log "the ranks have different options: --lr is 0.01 on rank 0, 0.02 on rank 1"; done
  no_orphans

  echo "launch: a node that knows another token"
  port=23606
  node 0 launch0.log --nproc-per-node 1 "${run[@]}"
  PENTATRON_JOB_TOKEN=another node 1 launch1.log --nproc-per-node 1 "${run[@]}"
  ends 1 6
  says launch1.log "token"
  kill "${pids[0]}"
  wait "${pids[0]}" || true
  no_orphans

  echo "launch: a node that never comes"
  port=23607
  node 0 launch0.log --nproc-per-node 1 "${run[@]}"
  ends 0 6
  says launch0.log "rank 1 of 2 did not join the rendezvous"
  says launch0.log "--distributed-timeout-minutes"
  no_orphans
}

case "$part" in
  slurm | kubernetes | torchrun) "$part" ;;
  mpirun) mpirun_part ;;
  launch) launch_part ;;
  *) echo "error: no part $part" >&2; exit 2 ;;
esac
echo "$part: good"

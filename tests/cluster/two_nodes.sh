#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two nodes of one machine, node1 (10.77.0.1) and node2 (10.77.0.2), each a network of its own behind a switch that "controller"
# (10.77.0.254) is at, too. Runs the command on the controller. Everything lives in namespaces that end with it. Needs root and iproute2.
#   two_nodes.sh COMMAND ...       the command finds `on_node NODE COMMAND ...` in PATH
#   SLURM=1 two_nodes.sh ...       with Slurm's daemons: srun and sbatch work (slurmctld, slurmd, munge)
set -euo pipefail
if [ -z "${INSIDE_TWO_NODES:-}" ]; then
  work="$(mktemp -d)"
  code=0
  INSIDE_TWO_NODES="$work" unshare --net --mount --uts --pid --fork --mount-proc --kill-child "$0" "$@" || code=$?
  rm -rf "$work"
  exit "$code"
fi
work="$INSIDE_TWO_NODES"
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -p /run/munge /run/netns "$work/bin"
hostname controller
ip link set lo up
ip link add bridge0 type bridge
ip addr add 10.77.0.254/24 dev bridge0
ip link set bridge0 up
printf '127.0.0.1 localhost\n10.77.0.254 controller\n10.77.0.1 node1\n10.77.0.2 node2\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
for n in 1 2; do
  ip netns add "node$n"
  ip link add "veth$n" type veth peer name eth0 netns "node$n"
  ip link set "veth$n" master bridge0 up
  ip -n "node$n" addr add "10.77.0.$n/24" dev eth0
  ip -n "node$n" link set eth0 up
  ip -n "node$n" link set lo up
done
cat >"$work/bin/on_node" <<'SH'
#!/bin/sh
node="$1"
shift
exec nsenter --net="/run/netns/$node" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$node" "$@"
SH
chmod +x "$work/bin/on_node"
export PATH="$work/bin:$PATH"

start_slurm() {
  head -c 1024 /dev/urandom >"$work/munge.key"
  chmod 400 "$work/munge.key"
  munged --force --key-file="$work/munge.key" --log-file="$work/munged.log" --seed-file="$work/seed" --pid-file="$work/munged.pid"
  mkdir -p "$work/state" "$work/spool-node1" "$work/spool-node2"
  cat >"$work/slurm.conf" <<CONF
ClusterName=pentatron
SlurmctldHost=controller(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=20
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldPidFile=$work/slurmctld.pid
SlurmdLogFile=$work/slurmd-%n.log
SlurmctldLogFile=$work/slurmctld.log
NodeName=node1 NodeAddr=10.77.0.1 CPUs=$(nproc --all)
NodeName=node2 NodeAddr=10.77.0.2 CPUs=$(nproc --all)
PartitionName=main Nodes=node1,node2 Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
CONF
  export SLURM_CONF="$work/slurm.conf"
  slurmctld
  for n in 1 2; do on_node "node$n" slurmd -N "node$n"; done
  for _ in $(seq 120); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
    sleep 0.5
  done
  tail -n 20 "$work"/*.log >&2
  echo "error: Slurm's nodes did not come up" >&2
  exit 1
}
[ -z "${SLURM:-}" ] || start_slurm
"$@"

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/container/Containerfile as far as a machine without a container engine can go: it is parsed; its last stage is put together
in a folder (what its packages, and no others, install of this Debian, and what its COPY names, from an installed build), and the
program runs there by chroot, offline: doctor, a training run with a loss that falls, a text, a plot. Needs root.
  container_test.py BUILD_FOLDER
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILE = ROOT / "examples" / "container" / "Containerfile"
KNOWN = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "CMD", "ENTRYPOINT"}
FAULTS = []


def expect(holds, what):
    if not holds:
        FAULTS.append(what)
        print(f"error: {what}")


def stages(text):
    """[(name, base, [(instruction, rest)])]"""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    result = []
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        expect(instruction in KNOWN, f"unknown instruction {instruction}")
        if instruction == "FROM":
            words = rest.split()
            expect(len(words) == 1 or (len(words) == 3 and words[1] == "AS"), f"FROM {rest}")
            result.append((words[2] if len(words) == 3 else "", words[0], []))
        else:
            expect(bool(result), f"{instruction} before FROM")
            if instruction in ("CMD", "ENTRYPOINT"):
                expect(isinstance(json.loads(rest), list), f"{instruction} {rest}")
            result[-1][2].append((instruction, rest))
    return result


def packages(stage):
    for instruction, rest in stage[2]:
        found = re.search(r"apt-get install -y --no-install-recommends ([^&]+)&&", rest)
        if instruction == "RUN" and found:
            return found.group(1).split()
    return []


def closure(asked):
    out = subprocess.run(["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks",
                          "--no-replaces", "--no-enhances", "--installed", *asked], capture_output=True, text=True, check=True).stdout
    names = {line.strip() for line in out.splitlines() if re.match(r"^[a-z0-9]", line)}
    there = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Status}\n"], capture_output=True, text=True, check=True).stdout
    installed = {line.split()[0] for line in there.splitlines() if line.endswith("install ok installed")}
    for name in asked:
        expect(name in installed, f"the package {name} is not on this machine")
    return sorted(names & installed)


def fill(root, names):
    """The files of installed packages, as an image's package manager would lay them."""
    listed = subprocess.run(["dpkg", "-L", *names], capture_output=True, text=True, check=True).stdout.splitlines()
    for name in filter(lambda n: n.startswith("/") and n != "/.", listed):
        source, target = pathlib.Path(name), root / name[1:]
        if name in ("/bin", "/sbin", "/lib", "/lib64") or not os.path.lexists(source) or re.match(r"/usr/share/(doc|man|locale|lintian|bug)/", name):
            continue
        # Debian 12's merged /usr: /lib is usr/lib.
        if re.match(r"/(bin|sbin|lib|lib64)(/|$)", name):
            target = root / "usr" / name[1:]
        if source.is_dir() and not source.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        elif not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(root / name):
            (root / name).symlink_to(f"usr/{name}")


def main(build):
    all_stages = stages(FILE.read_text())
    expect([s[:2] for s in all_stages] == [("build", "debian:12"), ("quickstart", "build"), ("", "debian:12-slim")], "other stages")
    steps = [rest for instruction, rest in all_stages[0][2] if instruction == "RUN"]
    for target in re.findall(r"^RUN make (\w+)", FILE.read_text(), re.MULTILINE) + json.loads(dict(all_stages[1][2])["CMD"])[1:]:
        expect(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"make {target} is no target")
    for option in re.findall(r"-D(PENTATRON_\w+)=", " ".join(steps)):
        expect(re.search(rf"\b{option}\b", "".join(p.read_text() for p in (ROOT / "cmake").glob("*.cmake"))), f"no option {option}")
    image = all_stages[-1]
    copies = [rest for instruction, rest in image[2] if instruction == "COPY"]
    expect(copies == ["--from=build /opt/pentatron /opt/pentatron"], f"other copies: {copies}")
    expect(any("--prefix /opt/pentatron" in step for step in steps), "the build does not install to /opt/pentatron")
    base = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Essential}\n"], capture_output=True, text=True, check=True).stdout
    essential = [line.split()[0] for line in base.splitlines() if line.endswith(" yes")]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "image"
        for name in ("tmp", "work", "proc", "dev", "opt", "etc"):
            (root / name).mkdir(parents=True)
        fill(root, closure(essential + packages(image)))
        for name in ("passwd", "group", "nsswitch.conf"):
            shutil.copy2(f"/etc/{name}", root / "etc" / name)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        subprocess.run(["ldconfig", "-r", str(root)], check=True)
        subprocess.run(["cmake", "--install", build, "--prefix", str(root / "opt/pentatron")], check=True, stdout=subprocess.DEVNULL)
        script = f"""set -e
mount -t proc proc {root}/proc
mount --bind /dev {root}/dev
exec chroot {root} /usr/bin/env -i PATH=/opt/pentatron/bin:/usr/bin:/bin OMP_NUM_THREADS=1 /bin/sh -ec '
cd /work
pentatron doctor || test $? -eq 8
model="--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 32 --mock-data"
model="$model --tokenizer-type NullTokenizer --vocab-size 63 --micro-batch-size 4 --global-batch-size 8 --lr 0.01 --eval-iters 0"
pentatron launch --nproc-per-node 2 pretrain_gpt $model --train-iters 20 --save c --save-interval 100 --metrics-file m.jsonl >log
pentatron generate --load c --prompt "1 2 3" --max-new-tokens 4 --tokens
pentatron plot m.jsonl --output loss.svg
test -s loss.svg'"""
        done = subprocess.run(["unshare", "--mount", "--net", "bash", "-c", "ip link set lo up 2>/dev/null; " + script], text=True)
        expect(done.returncode == 0, f"the image's program ended with {done.returncode}")
        metrics = root / "work/m.jsonl"
        losses = [json.loads(line).get("lm_loss") for line in metrics.read_text().splitlines()] if metrics.exists() else []
        losses = [loss for loss in losses if loss is not None]
        expect(len(losses) == 20 and losses[-1] < losses[0], f"losses {losses}")
    return 1 if FAULTS else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

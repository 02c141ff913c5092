#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the torch wheel that tools/setup/fetch_deps.sh unpacked importable on CPUs from a virtual environment.

    link_torch.py SITE PACKAGES      (.deps/site, the environment's site-packages)

The wheel is built for GPUs: its libraries name cuBLAS, cuDNN, NCCL and others, 4 GB that a CPU never calls. Here each of these is a
library of the same name whose functions, with the symbol versions that torch asks for, end the process; the rest of the package is links
into SITE. What fetch_deps.sh leaves out of the wheel (torchgen, a helper for shared memory) has empty stands-ins. Needs cc and readelf.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

TORCHGEN = '''# What torch imports from here is used by its tracing compilers only, which are not in this environment.
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
'''


def readelf(*words):
    return subprocess.run(["readelf", "-W", *map(str, words)], capture_output=True, text=True, check=True).stdout


def link(path, target):
    if path.is_symlink():
        path.unlink()
    path.symlink_to(target)


class Wanted:
    """What the wheel's libraries want of libraries that are not there."""

    def __init__(self, site):
        there = {path.name for path in site.rglob("*.so*")}
        self.libraries, self.file_of = set(), {}
        self.versioned, self.plain = collections.defaultdict(set), set()
        for path in (site / "torch" / "lib").glob("*.so*"):
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path))
            # The driver's own library is opened at run time.
            self.libraries |= {n for n in needed if re.match(r"lib(cu|nv|nccl)", n) and n not in there and n != "libcuda.so.1"}
            self.add_versions(path)
            self.add_symbols(path)

    def add_versions(self, path):
        file = None
        for line in readelf("-V", path).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found.group(1)
            if found := re.search(r"Name: (\S+)", line):
                self.file_of[found.group(1)] = file

    def add_symbols(self, path):
        for line in readelf("--dyn-syms", path).splitlines():
            words = line.split()
            if len(words) < 8 or words[6] != "UND":
                continue
            name, _, version = words[7].partition("@")
            if version:
                self.versioned[version.lstrip("@")].add(name)
            elif re.match(r"(p?nccl|cu|nv)[A-Za-z]", name):
                self.plain.add(name)

    def write(self, library, folder):
        versions = [version for version, file in self.file_of.items() if file == library]
        # Libraries without versions: all of their functions stand in one of them.
        names = set().union(*(self.versioned[v] for v in versions)) | (self.plain if library.startswith("libnccl") else set())
        script = "".join(f"{v} {{ global: {' '.join(n + ';' for n in sorted(self.versioned[v]))} }};\n" for v in versions)
        with tempfile.TemporaryDirectory() as temp:
            source, exports = pathlib.Path(temp, "s.c"), pathlib.Path(temp, "s.map")
            source.write_text("".join(f"void {n}(void) {{ __builtin_trap(); }}\n" for n in sorted(names)), encoding="utf-8")
            exports.write_text(script or "{ global: *; };\n", encoding="utf-8")
            subprocess.run(["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library}",
                            f"-Wl,--version-script={exports}", str(source), "-o", str(folder / library)], check=True)


def main():
    site, packages = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    torch = packages / "torch"
    for folder in (torch / "lib", torch / "bin", packages / "torchgen"):
        folder.mkdir(parents=True, exist_ok=True)
    for path in (site / "torch").iterdir():
        if path.name not in ("lib", "bin"):
            link(torch / path.name, path)
    for path in (site / "torch" / "lib").iterdir():
        link(torch / "lib" / path.name, path)
    for path in [site / "nvidia", *site.glob("torch-*.dist-info")]:
        link(packages / path.name, path)
    (packages / "torchgen" / "__init__.py").write_text("", encoding="utf-8")
    (packages / "torchgen" / "model.py").write_text(TORCHGEN, encoding="utf-8")
    helper = torch / "bin" / "torch_shm_manager"
    helper.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    helper.chmod(0o755)
    wanted = Wanted(site)
    for library in sorted(wanted.libraries):
        wanted.write(library, torch / "lib")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs lists of training options through `pentatron pretrain_gpt --check-options`, counts what is accepted and ranks what blocks the rest.

  tools/check_option_lists.py --program build/release/bin/pentatron LIST [LIST ...]

A LIST is a text file of command-line words (blanks or line ends between them, # starts a comment, one list a file), a YAML file whose
mapping MODEL_ARGS holds options and values as Megatron-LM's functional tests have them (true: the switch alone; false or null: left out),
or a folder of such files. ${VARIABLES} in values become file names, ${REPEAT} (the number of a repetition, used as a seed) is 1. Each list
is checked as rank 0 of the least world that it asks for (tensor x pipeline x context parallel size x instances of the distributed optimizer;
or of --world-size), so that no launcher is needed; files that options name need not exist.
--json FILE writes the result; --names PART keeps lists whose path contains PART. Exit code 0 unless a list could not be read.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

NUMBERS = {"REPEAT": "1"}
SIZES = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size",
         "--num-distributed-optimizer-instances")


def words_of_yaml(path):
    import yaml  # only these lists need it
    content = yaml.safe_load(path.read_text())
    arguments = content.get("MODEL_ARGS") if isinstance(content, dict) else None
    if not isinstance(arguments, dict):
        return None
    words = []
    for name, value in arguments.items():
        if value is None or value is False:
            continue
        words.append(name)
        if value is True:
            continue
        if isinstance(value, list):
            words += [str(item) for item in value]
        else:
            text = str(value)
            bracketed = re.fullmatch(r"\[(.*)\]", text)
            # As Megatron-LM's runner (_run_training.sh): only brackets make several words of a value.
            words += shlex.split(bracketed.group(1)) if bracketed else [text.strip()]
    return words


def words_of_text(path):
    return shlex.split(path.read_text(), comments=True)


def read_list(path):
    words = words_of_yaml(path) if path.suffix in (".yaml", ".yml") else words_of_text(path)
    return None if words is None else [re.sub(r"\$\{?(\w+)\}?", lambda m: NUMBERS.get(m.group(1), m.group(1)), word) for word in words]


def world_size(words):
    size = 1
    for option in SIZES:
        if option in words[:-1]:
            number = words[words.index(option) + 1]
            size *= int(number) if number.isdigit() else 1
    return size


def check(program, path, words, world):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMPI"))}
    environment.update(WORLD_SIZE=str(world or world_size(words)), RANK="0", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29500")
    result = subprocess.run([program, "pretrain_gpt", "--check-options", *words], capture_output=True, text=True, env=environment, timeout=600)
    lines = [line[2:] for line in (result.stdout + result.stderr).splitlines() if line.startswith("  ")]
    # 4: the options are accepted, their files are not on this machine.
    accepted = result.returncode in (0, 4)
    if not accepted and not lines:
        lines = (result.stderr or result.stdout).strip().splitlines()[-1:]
    return {"path": str(path), "accepted": accepted, "exit_code": result.returncode,
            "problems": [] if accepted else lines}


def blocker(problem):
    """What a problem is counted under: its option, with the value where the value is the problem."""
    unknown = re.match(r"unknown option '(--[\w-]+)'", problem)
    if unknown:
        return f"unknown {unknown.group(1)}"
    option = re.match(r"(--[\w-]+)( '[^']*')?", problem)
    return option.group(0) if option else problem[:80]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", required=True)
    parser.add_argument("--names", default="")
    parser.add_argument("--world-size", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="every list with its problems")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        parser.error(f"--program {options.program}: there is no such program")
    paths = []
    for entry in options.lists:
        paths += sorted(p for p in entry.rglob("*") if p.suffix in (".yaml", ".yml", ".txt")) if entry.is_dir() else [entry]
    paths = [path for path in paths if options.names in str(path)]
    failed = 0
    lists = []
    for path in paths:
        try:
            words = read_list(path)
        except (OSError, ValueError) as error:
            print(f"error: {path}: {error}", file=sys.stderr)
            failed += 1
            continue
        if words is not None:
            lists.append((path, words))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda item: check(options.program, item[0], item[1], options.world_size), lists))
    accepted = sum(result["accepted"] for result in results)
    print(f"{accepted} of {len(results)} lists accepted")
    ranks = collections.Counter()
    alone = collections.Counter()
    for result in results:
        blockers = {blocker(problem) for problem in result["problems"]}
        ranks.update(blockers)
        if len(blockers) == 1:
            alone.update(blockers)
        if options.verbose:
            print(f"{'accepted' if result['accepted'] else 'refused '}  {result['path']}")
            for problem in result["problems"]:
                print(f"    {problem}")
    if ranks:
        print("\nblocks  alone  what")
        for name, count in ranks.most_common(60):
            print(f"{count:6} {alone[name]:6}  {name}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

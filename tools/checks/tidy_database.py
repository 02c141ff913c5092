#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies a compile_commands.json without the precompiled header and gcc-only flags; prints the files it holds, a line each,
relative to the current folder.
"""
import json
import os
import re
import sys

source, target = sys.argv[1:3]
with open(source, encoding="utf-8") as f:
    entries = json.load(f)
for entry in entries:
    command = entry["command"]
    command = re.sub(r"\S*ccache\S*\s", "", command)
    command = re.sub(r"\S*cmake -E env (\S+=\S* )+", "", command)
    command = command.replace("-fpch-preprocess", "").replace("-Winvalid-pch", "")
    command = re.sub(r"-include \S*cmake_pch\.hxx", "", command)
    entry["command"] = command
with open(target, "w", encoding="utf-8") as f:
    json.dump(entries, f)
for name in sorted({os.path.join(entry["directory"], entry["file"]) for entry in entries}):
    print(os.path.relpath(name))

# SPDX-License-Identifier: Apache-2.0
"""Runs a script again with the Python of the reference environment (tools/reference/setup.sh), unless this one has what it needs."""
import os
import pathlib
import sys

REENTERED = "PENTATRON_REFERENCE_REENTERED"


def enter(missing):
    """Called where an import has failed; does not come back."""
    name = pathlib.Path(sys.argv[0]).stem
    deps = os.environ.get("PENTATRON_DEPS_DIR", str(pathlib.Path(__file__).resolve().parents[2] / ".deps"))
    python = os.environ.get("PENTATRON_REFERENCE_PYTHON", str(pathlib.Path(deps, "reference-venv", "bin", "python")))
    if os.environ.get(REENTERED) or not os.access(python, os.X_OK):
        sys.exit(f"{name}: {missing}; {python} should have it: run tools/reference/setup.sh")
    os.execve(python, [python, *sys.argv], {**os.environ, REENTERED: "1"})

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles what the build itself does not: each header on its own, and everything with clang.

  compile.py headers ROOT BUILD    every header of plugin/ compiles alone
  compile.py clang ROOT BUILD      clang++ accepts, without a warning, the sources of the plugin,
                                   and with TESTS_TIER=full every source of the build
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

DROPPED = ("-fsanitize", "-fdiagnostics-color")
SKIPPED = 77  # what Meson takes for a skipped test


def run(command, directory):
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def commands(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as listed:
        return [entry for entry in json.load(listed) if entry["file"].endswith((".cc", ".cpp"))]


def flags_of(entry):
    """The arguments of a compile command that matter for checking, without output files."""
    words = shlex.split(entry["command"])
    while not words[0].startswith("-"):
        words.pop(0)  # ccache, compiler
    kept = []
    skip = False
    for word in words:
        if skip or word in ("-c", "-MD", "-o", "-MQ", "-MF") or word.startswith(DROPPED):
            skip = not skip and word in ("-o", "-MQ", "-MF")
            continue
        kept.append(word)
    return kept


def check_all(work):
    """`work`: (name, command, directory). True if every command is silent and succeeds."""
    def check(item):
        name, command, directory = item
        result = run(command, directory)
        if result.returncode == 0 and not result.stderr:
            return True
        print(f"{name}: {command[0]}\n{result.stderr}", flush=True)
        return False

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, work))
    print(f"{len(results)} compiled, {results.count(False)} with errors or warnings")
    return bool(results) and all(results)


def headers(root, build):
    model = next(entry for entry in commands(build) if "plugin/base/status.cc" in entry["file"])
    flags = [flag for flag in flags_of(model) if not flag.endswith("status.cc")]
    work = []
    for folder, _, names in os.walk(os.path.join(root, "plugin")):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(".h"):
                continue
            work.append((os.path.relpath(path, root),
                         ["g++", *flags, "-fsyntax-only", "-x", "c++", "-include", path,
                          os.devnull], model["directory"]))
    return check_all(work)


def clang(root, build):
    if not shutil.which("clang++"):
        print("no clang++ here")
        sys.exit(SKIPPED)
    full = os.environ.get("TESTS_TIER") == "full"
    work = []
    for entry in commands(build):
        if not full and "plugin/" not in entry["file"]:
            continue
        if not os.path.exists(os.path.join(entry["directory"], entry["file"])):
            continue  # generated, and not built yet
        # g++ does not count changes of sign among conversions.
        command = ["clang++", *flags_of(entry), "-fsyntax-only", "-Wno-unknown-warning-option",
                   "-Wno-sign-conversion"]
        work.append((os.path.relpath(os.path.join(entry["directory"], entry["file"]), root),
                     command, entry["directory"]))
    return check_all(work)


if __name__ == "__main__":
    mode = {"headers": headers, "clang": clang}[sys.argv[1]]
    ok = mode(os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]))
    sys.exit(0 if ok else 1)

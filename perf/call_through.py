#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to pass a call through to NCCL, in nanoseconds and instructions per call.

  call_through.py [--build DIR] [--json]

Instructions are counted with valgrind's callgrind: the difference of two runs with different
numbers of calls. Both figures are given for the program alone and with railyard preloaded; what
railyard adds is their difference.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

FUNCTIONS = ("ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGroupStart+End", "ncclCommGetAsyncError",
             "ncclAllReduce")
CALLS = {"ncclGroupStart+End": 2}  # in one repetition
FEW, MANY = 1000, 11000
NANOSECONDS, INSTRUCTIONS = 100, 400  # wanted, at most


def environment(build, preloaded):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("RAILYARD_", "NCCL_"))}
    variables["LD_LIBRARY_PATH"] = os.path.join(build, "perf")
    if preloaded:
        variables["LD_PRELOAD"] = os.path.join(build, "plugin", "librailyard.so")
    return variables


def run(command, variables):
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return done


def instructions(program, function, variables):
    counts = []
    for calls in (FEW, MANY):
        with tempfile.TemporaryDirectory() as folder:
            done = run(["valgrind", "--tool=callgrind",
                        f"--callgrind-out-file={folder}/out", program, function,
                        "--calls", str(calls)], variables)
        counts.append(int(re.search(r"Collected : (\d+)", done.stderr).group(1)))
    return (counts[1] - counts[0]) / (MANY - FEW)


def measure(build, function):
    program = os.path.join(build, "perf", "call_through")
    row = {"function": function}
    for name, preloaded in (("alone", False), ("railyard", True)):
        variables = environment(build, preloaded)
        row[f"ns_{name}"] = float(run([program, function], variables).stdout) / CALLS.get(function, 1)
        row[f"instructions_{name}"] = (
            instructions(program, function, variables) / CALLS.get(function, 1))
    for unit in ("ns", "instructions"):
        row[f"{unit}_added"] = row[f"{unit}_railyard"] - row[f"{unit}_alone"]
    return {key: value if key == "function" else round(value, 1) for key, value in row.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--json", action="store_true", help="one JSON document, no table")
    args = parser.parse_args()
    rows = [measure(os.path.abspath(args.build), function) for function in FUNCTIONS]
    if args.json:
        print(json.dumps({"wanted": {"ns_added": NANOSECONDS, "instructions_added": INSTRUCTIONS},
                          "calls": rows}, indent=2))
        return
    print(f"{'per call':24}{'alone':>18}{'with railyard':>20}{'added':>20}")
    for row in rows:
        print(f"{row['function']:24}" + "".join(
            f"{row['ns_' + name]:>{width}.1f} ns {row['instructions_' + name]:>6.0f} i"
            for name, width in (("alone", 7), ("railyard", 9), ("added", 9))))
    print(f"wanted: less than {NANOSECONDS} ns and {INSTRUCTIONS} instructions (i) added per call")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""alltoall_perf on small emulated clusters, with and without railyard.

  run_test.py --program FILE --launcher FILE --preload FILE

Each check is one test; the last line is "N passed, N failed".
"""

import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
from checks import check, expect, run  # noqa: E402  pylint: disable=wrong-import-position

PATTERNS = ["uniform", "random", "zipf:1.0", "hot:1", "sparse:0.5"]
SIZES = ["-b", "1000", "-e", "300000", "-f", "17", "-n", "2", "-w", "1"]


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.json = os.path.join(folder, "results.json")

    def run(self, *options, railyard=False, launch=("--layout", "2,2")):
        plugin = ["--preload", self.args.preload, "--env", "RAILYARD_TRANSPORT=tcp"]
        return subprocess.run(
            [self.args.launcher, "--timeout", "60", *launch, *(plugin if railyard else []), "--",
             self.args.program, *options], capture_output=True, text=True, check=False, timeout=90)

    def results(self, *options, **how):
        ended = self.run(*options, "--json", self.json, **how)
        expect(ended.returncode == 0, ended.stdout, ended.stderr)
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)


@check
def every_pattern(bench):
    for railyard in (False, True):
        for pattern in PATTERNS:
            carrier = "railyard" if railyard else "nccl"
            found = bench.results(*SIZES, "--pattern", pattern, "--expect", carrier,
                                  railyard=railyard)
            expect(found["carrier"] == carrier and found["pattern"] == pattern, found)
            expect(found["ranks"] == 4 and found["nodes"] == 2, found)
            expect([r["size"] for r in found["results"]] == [1000, 17000, 289000], found)
            expect(all(r["wrong"] == 0 and r["time_us_min"] <= r["time_us_median"] <=
                       r["time_us_max"] for r in found["results"]), found)


@check
def columns(bench):
    """Definitions of nccl-tests: count per pair, bandwidth from the size, one rank's share off."""
    found = bench.results("-b", "64K", "-e", "64K", "-d", "double", "-c", "0")
    result = found["results"][0]
    expect(result["size"] == 65536 and result["bytes_per_pair"] == 16384, result)
    expect(abs(result["algbw"] - 65536 / result["time_us_median"] / 1e3) < 1e-9, result)
    expect(abs(result["busbw"] - result["algbw"] * 3 / 4) < 1e-9, result)
    expect(result["wrong"] == -1 and result["busiest_node_bytes"] == 2 * 2 * 16384, result)


@check
def steps(bench):
    found = bench.results("-b", "8K", "-e", "24K", "-i", "8K", "-n", "1", "--messages")
    expect([r["size"] for r in found["results"]] == [8192, 16384, 24576], found)


@check
def several_gpus(bench):
    """Two processes of two threads with two GPUs each."""
    found = bench.results(*SIZES, "-t", "2", "-g", "2", railyard=True,
                          launch=("--layout", "1,1", "--env", "EMULATOR_GPUS=4"))
    expect(found["ranks"] == 8 and found["nodes"] == 2, found)
    expect(all(r["wrong"] == 0 for r in found["results"]), found)


@check
def wrong_carrier(bench):
    for railyard, wanted in ((False, "railyard"), (True, "nccl")):
        ended = bench.run(*SIZES, "--expect", wanted, railyard=railyard)
        expect(ended.returncode == 1, ended.returncode)
        expect(f"to be carried by {wanted}, but it was" in ended.stderr, ended.stderr)


@check
def bad_options(bench):
    for options, what in ((["--pattern", "warm"], "--pattern must be"),
                          (["-b", "2M", "-e", "1M"], "-e must not be below -b"),
                          (["-d", "string"], "--datatype"), (["-n", "0"], "--iters"),
                          (["--json", "/nonexistent/x"], "cannot write /nonexistent/x"),
                          (["-g", "3"], "CUDA sees 1 GPUs here")):
        ended = subprocess.run([bench.args.launcher, "--layout", "1", "--", bench.args.program,
                                *([] if "-b" in options else ["-b", "1K", "-e", "1K"]), *options],
                               capture_output=True, text=True,
                               check=False, timeout=60)
        expect(ended.returncode != 0 and what in ended.stderr, options, ended.stdout, ended.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    for name in ("program", "launcher", "preload"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    return run(args, Bench)


if __name__ == "__main__":
    sys.exit(main())

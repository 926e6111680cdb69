#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one scenario of the interception program on an emulated cluster, plain or with the plugin,
and proves from the statistics of both who carried its messages.

A scenario that passes under plain NCCL shows that it is a correct NCCL program; what is peculiar to
the plugin (errors it reports, waits it releases) runs with it only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

NCCL_COUNTERS = ("p2p_internode_bytes", "p2p_intranode_bytes", "p2p_self_bytes")
OWN_COUNTERS = ("phase1_bytes", "local_bytes", "self_bytes")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--preload", help="the plugin; none: plain NCCL")
    parser.add_argument("--load-late", help="the plugin, which the program loads itself")
    parser.add_argument("--railyard", action="store_true",
                        help="set railyard up although it is not preloaded")
    parser.add_argument("--argument", action="append", default=[],
                        help="for the program, after the scenario")
    parser.add_argument("--carrier", choices=("nccl", "railyard", "any"), default="any",
                        help="who must have carried all messages")
    parser.add_argument("--log", action="append", default=[], help="text that must be on stderr")
    parser.add_argument("--timeout", type=int, default=90)
    parser.add_argument("scenario")
    parser.add_argument("launch", nargs=argparse.REMAINDER, help="for the launcher, after --")
    args = parser.parse_args()
    args.launch = [argument for argument in args.launch if argument != "--"]
    return args


def total(path, counters):
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as lines:
        return sum(json.loads(line).get(name, 0) for line in lines for name in counters)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        nccl, own = os.path.join(folder, "nccl"), os.path.join(folder, "own")
        command = [args.launcher, "--timeout", str(args.timeout), "--tag-output",
                   "--env", f"EMULATOR_NCCL_STATS={nccl}"] + args.launch
        if args.preload:
            command += ["--preload", args.preload]
        if args.load_late:
            command += ["--env", f"LATE_PLUGIN={args.load_late}"]
        if args.preload or args.load_late or args.railyard:
            command += ["--env", f"RAILYARD_STATS={own}", "--env", "RAILYARD_TRANSPORT=tcp",
                        "--env", "RAILYARD_BUFFER_MB=8"]
        command += ["--", args.program, args.scenario] + args.argument
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr, sep="", end="")
        if done.returncode != 0:
            sys.exit(f"exit status {done.returncode}: {' '.join(command)}")
        by_nccl, by_us = total(nccl, NCCL_COUNTERS), total(own, OWN_COUNTERS)
        print(f"bytes carried: {by_nccl} by NCCL, {by_us} by railyard")
        if args.carrier == "railyard" and (by_nccl > 0 or by_us == 0):
            sys.exit("railyard should have carried all messages")
        if args.carrier == "nccl" and (by_nccl == 0 or by_us > 0):
            sys.exit("NCCL should have carried all messages")
        for text in args.log:
            if text not in done.stderr:
                sys.exit(f"the log does not say {text!r}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs random NCCL programs on random clusters, on plain NCCL and through the preloaded library.

  run_programs.py --program FILE --launcher FILE --preload FILE [--seed S] [--spoil]

Each job runs ten programs, whose seeds follow each other, twice on one cluster. Both runs check
every byte against a reference; here all that they received is compared once more, and what NCCL
and the library say they carried between nodes with what was sent. The quick tier has 50 programs,
TESTS_TIER=full 1,000; the last job's seed is a fresh one.
"""

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time

PROGRAMS_PER_JOB = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("program", "launcher", "preload"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--seed", type=int, help="run only the job of this seed")
    parser.add_argument("--spoil", action="store_true", help="a changed byte must be found")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one run")
    return parser.parse_args()


def cluster(seed):
    """Node of each rank: 2 to 8 ranks on 2 to 4 nodes of any size, in any order."""
    rng = random.Random(seed)
    ranks = rng.randint(2, 8)
    nodes = rng.randint(2, min(4, ranks))
    node_of = list(range(nodes)) + [rng.randrange(nodes) for _ in range(ranks - nodes)]
    rng.shuffle(node_of)
    names = {}
    return [names.setdefault(node, len(names)) for node in node_of]


def run(args, seed, node_of, preload, folder):
    """(what is wrong, lines received, bytes that were to be carried, bytes that were)"""
    name = "railyard" if preload else "plain"
    report, nccl, own = (os.path.join(folder, f"{seed}.{name}.{kind}")
                         for kind in ("report", "nccl", "own"))
    nodes = ",".join(map(str, node_of))
    line = [args.launcher, "--order", nodes, "--timeout", str(args.timeout),
            "--env", f"EMULATOR_NCCL_STATS={nccl}", "--env", "EMULATOR_MULTIPROCESSORS=4"]
    if preload:
        line += ["--preload", args.preload, "--env", f"RAILYARD_STATS={own}",
                 "--env", "RAILYARD_TRANSPORT=tcp", "--env", "RAILYARD_BUFFER_MB=16"]
    line += ["--", args.program, "--seed", str(seed * 1000), "--programs", str(PROGRAMS_PER_JOB),
             "--nodes", nodes, "--report", report]
    if args.spoil:
        line.append("--spoil")
    done = subprocess.run(line, capture_output=True, text=True, check=False, errors="replace")
    output = done.stdout + done.stderr
    if args.spoil:
        found = done.returncode == 1 and ": byte " in output
        return ([] if found else ["a changed byte went unnoticed", output]), [], {}, {}
    if done.returncode != 0:
        return ([f"{name}: exit status {done.returncode}", "command: " + shlex.join(line),
                 output[-20000:]], [], {}, {})
    received, sent = [], {"taken_over": 0, "left": 0, "launches": 0}
    with open(report, encoding="utf-8") as lines:
        for text in lines:
            words = text.split()
            if "taken_over" not in words:
                received.append(text)
                continue
            for key in sent:
                sent[key] += int(words[words.index(key) + 1])
    carried = {"nccl": total(nccl, "p2p_internode_bytes"), "own": total(own, "phase1_bytes"),
               "pulled": total(own, "phase2_bytes")}
    return [], sorted(received), sent, carried


def total(path, name):
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as lines:
        return sum(json.loads(line).get(name, 0) for line in lines)


def run_job(args, seed, folder):
    """Returns what is wrong, bytes carried by the library, and launches of graphs."""
    node_of = cluster(seed)
    print(f"seed {seed}: nodes {','.join(map(str, node_of))}", flush=True)
    problems, plain, sent, carried = run(args, seed, node_of, False, folder)
    if problems or args.spoil:
        return problems, 0, 0
    if carried["nccl"] != sent["taken_over"] + sent["left"]:
        problems.append(f"plain: NCCL carried {carried['nccl']} bytes between nodes, sent: {sent}")
    wrong, own, sent, carried = run(args, seed, node_of, True, folder)
    problems += wrong
    if wrong:
        return problems, 0, 0
    if plain != own:
        different = sorted(set(plain) ^ set(own))
        problems.append("received differs: " + " ".join(different[:6]))
    if carried != {"nccl": sent["left"], "own": sent["taken_over"], "pulled": sent["taken_over"]}:
        problems.append(f"carried {carried}, sent {sent}")
    return problems, carried["own"], sent["launches"]


def main():
    args = arguments()
    full = os.environ.get("TESTS_TIER") == "full"
    jobs = (1000 if full else 50) // PROGRAMS_PER_JOB
    seeds = list(range(1, jobs)) + [random.SystemRandom().randrange(1000, 1 << 31)]
    if args.seed is not None:
        seeds = [args.seed]
    elif args.spoil:
        seeds = [1]
    start = time.monotonic()
    failed = carried = launches = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            problems, by_us, replayed = run_job(args, seed, folder)
            carried += by_us
            launches += replayed
            if problems:
                failed += 1
                print(f"FAILED seed {seed}:", *problems, sep="\n  ", flush=True)
                print("to run it again: " + shlex.join(sys.argv + ["--seed", str(seed)]))
    print(f"{len(seeds) * PROGRAMS_PER_JOB} programs in {time.monotonic() - start:.1f} s; "
          f"{carried} bytes between nodes by the library, {launches} launches of graphs")
    if not args.spoil and args.seed is None and (carried == 0 or launches == 0):
        failed += 1
        print("FAILED: nothing was carried or nothing captured, which these seeds should")
    print(f"{len(seeds) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

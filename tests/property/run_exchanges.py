#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs exchange_fuzz over random clusters and proves who carried what.

Each job is one start of exchange_fuzz on a cluster of its own, all of it derived from the job's
seed: how many ranks and nodes, which rank is where, how large the buffers are, how many threads a
kernel block has. A job passes if every byte is right, nothing hangs, and the statistics of NCCL and
of the preloaded library (if there is one) add up to exactly what exchange_fuzz sent: all of it
carried by the library on communicators that it takes over, none of it on others.

TESTS_TIER=full in the environment runs many more exchanges than the default, quick.
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

EXCHANGES_PER_JOB = 10
NCCL_COUNTERS = ("p2p_internode", "p2p_intranode", "p2p_self")
OWN_COUNTERS = ("phase1", "phase2", "local", "self")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="exchange_fuzz")
    parser.add_argument("--launcher", required=True, help="emulate")
    parser.add_argument("--libraries", required=True, help="folder with the emulated libraries")
    parser.add_argument("--preload", help="library to preload; none: plain NCCL")
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--nics", default="", help="RDMA devices to share out among the nodes")
    parser.add_argument("--threads", action="store_true", help="ranks as threads of one process")
    parser.add_argument("--quick", type=int, default=100, help="exchanges of the quick tier")
    parser.add_argument("--full", type=int, default=2000, help="exchanges of the full tier")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one job")
    parser.add_argument("--message-bytes", type=int, default=8 << 20)
    parser.add_argument("--exchange-bytes", type=int, default=64 << 20)
    parser.add_argument("--max-ranks", type=int, default=12)
    parser.add_argument("--seed", type=int, help="run only the job of this seed")
    parser.add_argument("--spoil", action="store_true", help="one job that must find a wrong byte")
    return parser.parse_args()


def random_cluster(rng, max_ranks):
    """The node of every rank: two to four nodes, mostly of unequal size."""
    ranks = rng.randint(2, max_ranks)
    nodes = rng.randint(2, min(4, ranks))
    node_of = list(range(nodes)) + [rng.randrange(nodes) for _ in range(ranks - nodes)]
    if rng.random() < 0.3:
        node_of.sort()
    else:
        rng.shuffle(node_of)
    # The launcher numbers nodes; any numbering from 0 without gaps will do.
    names = {}
    return [names.setdefault(node, len(names)) for node in node_of]


def job_environment(rng, args):
    environment = {
        "EMULATOR_MULTIPROCESSORS": "4",
        "EMULATOR_BLOCK_THREADS": rng.choice(["1", "4"]),
    }
    if args.preload:
        environment["RAILYARD_TRANSPORT"] = args.transport
        environment["RAILYARD_BUFFER_MB"] = rng.choice(["8", "16", "64"])
        environment["RAILYARD_CTAS"] = rng.choice(["1", "2", "4"])
    return environment


def read_lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def add(totals, prefix, bytes_, messages):
    totals[prefix + "_bytes"] = totals.get(prefix + "_bytes", 0) + bytes_
    totals[prefix + "_messages"] = totals.get(prefix + "_messages", 0) + messages


def taken_over(members, node_of):
    nodes = [node_of[rank] for rank in members]
    return len(set(nodes)) > 1 and len(set(nodes)) < len(nodes)


def expected_traffic(report, node_of, args):
    """What NCCL and the preloaded library must say they carried."""
    nccl, own = {}, {}
    for line in report:
        by_library = args.preload and taken_over(line["members"], node_of)
        for peer, size, count in zip(line["members"], line["bytes"], line["messages"]):
            if peer == line["rank"]:
                add(own if by_library else nccl, "self" if by_library else "p2p_self", size, count)
            elif node_of[peer] == node_of[line["rank"]] and by_library:
                add(own, "local", size, count)
            elif by_library:
                add(own, "phase1", size, count)
                add(own, "phase2", size, count)
            else:
                same = node_of[peer] == node_of[line["rank"]]
                add(nccl, "p2p_intranode" if same else "p2p_internode", size, count)
    return nccl, own


def counted(lines, prefixes):
    totals = {}
    for line in lines:
        for prefix in prefixes:
            add(totals, prefix, line.get(prefix + "_bytes", 0), line.get(prefix + "_messages", 0))
    return totals


def differences(who, expected, actual):
    names = sorted(set(expected) | set(actual))
    return [
        f"{who} {name}: {actual.get(name, 0)}, expected {expected.get(name, 0)}"
        for name in names
        if expected.get(name, 0) != actual.get(name, 0)
    ]


def wrong_transports(args, lines):
    found = {line["transport"] for line in lines if "left" not in line} - {args.transport}
    return [f"carried over {name}, not {args.transport}" for name in sorted(found)]


def own_nics(args, node_of):
    """Launcher options that give every node RDMA devices of its own."""
    devices, nodes = args.nics.split(","), len(set(node_of))
    share = len(devices) // nodes
    options = []
    for rank, node in enumerate(node_of):
        mine = ",".join(devices[node * share:(node + 1) * share])
        options += ["--env-on", f"{rank}:NCCL_IB_HCA=={mine}"]
    return options


def command(args, seed, exchanges, node_of, environment, report):
    program = [args.program, "--seed", str(seed), "--exchanges", str(exchanges),
               "--message-bytes", str(args.message_bytes),
               "--exchange-bytes", str(args.exchange_bytes), "--report", report]
    if args.spoil:
        program.append("--spoil")
    program += ["--captures", "all"]
    if args.threads:
        program += ["--threads", str(len(node_of))]
        environment["EMULATOR_GPUS"] = str(len(node_of))
        environment["LD_LIBRARY_PATH"] = args.libraries
        environment["EMULATOR_HOSTIDS"] = ",".join(f"node{node}" for node in node_of)
        if args.preload:
            environment["RAILYARD_HOSTID"] = environment["EMULATOR_HOSTIDS"]
            environment["LD_PRELOAD"] = args.preload
        return ["env"] + [f"{k}={v}" for k, v in sorted(environment.items())] + program
    launch = [args.launcher, "--order", ",".join(map(str, node_of)), "--timeout", str(args.timeout)]
    for name, value in sorted(environment.items()):
        launch += ["--env", f"{name}={value}"]
    if args.preload:
        launch += ["--preload", args.preload]
    if args.nics:
        launch += own_nics(args, node_of)
    return launch + ["--"] + program


def run_job(args, seed, exchanges, folder):
    """Runs one job; returns a list of what is wrong with it, and how often graphs were launched."""
    rng = random.Random(seed)
    node_of = random_cluster(rng, args.max_ranks)
    while args.preload and not taken_over(range(len(node_of)), node_of) and rng.random() < 0.9:
        node_of = random_cluster(rng, args.max_ranks)  # else the library would have little to do
    environment = job_environment(rng, args)
    files = {name: os.path.join(folder, f"{seed}.{name}") for name in ("report", "nccl", "own")}
    environment["EMULATOR_NCCL_STATS"] = files["nccl"]
    if args.preload:
        environment["RAILYARD_STATS"] = files["own"]
    line = command(args, seed, exchanges, node_of, environment, files["report"])
    print(f"seed {seed}: nodes {','.join(map(str, node_of))}", flush=True)
    try:
        result = subprocess.run(line, timeout=args.timeout + 15, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        code, output = result.returncode, result.stdout
    except subprocess.TimeoutExpired as expired:
        code, output = 124, expired.stdout or b""
    text = output.decode(errors="replace")
    if args.spoil:
        seen = code == 1 and ("is 0x" in text or "guard byte" in text)
        problems = [] if seen else [f"a changed byte went unnoticed (exit status {code})", text]
        return problems, 0
    if code != 0:
        why = "it hung" if code == 124 else f"exit status {code}"
        return [why, "command: " + shlex.join(line), text[-20000:]], 0
    report = read_lines(files["report"])
    nccl, own = expected_traffic(report, node_of, args)
    problems = differences("NCCL's", nccl, counted(read_lines(files["nccl"]), NCCL_COUNTERS))
    problems += differences("the preloaded library's", own,
                            counted(read_lines(files["own"]), OWN_COUNTERS))
    problems += wrong_transports(args, read_lines(files["own"]))
    if problems:
        problems += ["command: " + shlex.join(line), text[-20000:]]
    return problems, sum(line["replays"] for line in report)


def job_seeds(args):
    """Seeds that are always the same, then one that never is."""
    if args.seed is not None:
        return [args.seed]
    if args.spoil:
        return [1]
    exchanges = args.full if os.environ.get("TESTS_TIER") == "full" else args.quick
    jobs = max(1, -(-exchanges // EXCHANGES_PER_JOB))
    fresh = random.SystemRandom().randrange(1000, 1 << 31)
    if jobs == 1:
        return [fresh]
    return list(range(1, jobs)) + [fresh]


def main():
    args = arguments()
    passed, failed, replays = 0, 0, 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for seed in job_seeds(args):
            problems, replayed = run_job(args, seed, EXCHANGES_PER_JOB, folder)
            replays += replayed
            if problems:
                failed += 1
                print(f"FAILED seed {seed}:", *problems, sep="\n  ", flush=True)
                print("to run it again: " + shlex.join(sys.argv + ["--seed", str(seed)]))
            else:
                passed += 1
    print(f"{(passed + failed) * EXCHANGES_PER_JOB} exchanges in "
          f"{time.monotonic() - start:.1f} s")
    print(f"{replays} launches of graphs with exchanges in them")
    if args.preload and passed > 1 and replays == 0:
        failed += 1
        print("FAILED: nothing was ever captured, which these seeds should")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

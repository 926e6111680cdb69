#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every case of the conformance program twice, plain and with a library preloaded, and compares
the logs of all ranks line by line. A case passes if they are alike, no fact in them is wrong, and the
counters of both runs say that the library carried what NCCL carries without it.

Every row of rows.txt must have a case. What pending.txt names is not run, and counted as skipped.
"""

import argparse
import collections
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NCCL_COUNTERS = ("p2p_internode", "p2p_intranode", "p2p_self")
OWN_COUNTERS = ("phase1", "local", "self")
SHARED, UNCOUNTED, LATE = 1, 2, 4  # traits of cases.h
UNLIKE_CASE = "differs-on-purpose"

Layout = collections.namedtuple("Layout", "bit name ranks taken launch program")
ONE_PROCESS = ["--layout", "1", "--env", "EMULATOR_GPUS=5", "--env", "EMULATOR_HOSTIDS=a,a,a,b,b",
               "--env", "RAILYARD_HOSTID=a,a,a,b,b"]
LAYOUTS = [
    Layout(1, "processes", 5, True, ["--layout", "3,2"], []),
    Layout(2, "threads", 5, True, ONE_PROCESS, ["--threads", "5"]),
    Layout(4, "three nodes", 6, True, ["--layout", "2,3,1"], []),
    Layout(8, "one node", 4, False, ["--layout", "4"], []),
    Layout(16, "one rank per node", 3, False, ["--layout", "1,1,1"], []),
    Layout(32, "checked pointers", 3, True,
           ["--layout", "2,1", "--env", "NCCL_CHECK_POINTERS=1"], []),
    Layout(64, "non-blocking", 3, True, ["--layout", "2,1", "--env", "NCCL_COMM_BLOCKING=0"], []),
]
VERSIONS_BIT = 128

Case = collections.namedtuple("Case", "name rows layouts since traits")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--program", required=True, help="conformance")
    parser.add_argument("--launcher", required=True, help="emulate")
    parser.add_argument("--libraries", required=True, help="folder with the emulated libraries")
    parser.add_argument("--preload", required=True, help="library to compare with plain NCCL")
    parser.add_argument("--case", action="append", default=[], help="run only this case")
    parser.add_argument("--layout", action="append", default=[], help="run only in this layout")
    parser.add_argument("--pending", action="store_true", help="run also what pending.txt names")
    parser.add_argument("--keep", help="folder for logs")
    parser.add_argument("--prove", action="store_true",
                        help="run a case that differs on purpose, which must be found")
    return parser.parse_args()


def read_table(name):
    """{name: text} of a file whose lines are names and, after at least two blanks, texts."""
    with open(os.path.join(HERE, name), encoding="utf-8") as lines:
        return dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines
                    if line.strip() and line[0] != "#")


def read_cases(args):
    listed = subprocess.run([args.program, "--list"], check=True, capture_output=True, text=True,
                            env={**os.environ, "LD_LIBRARY_PATH": args.libraries}).stdout
    cases = []
    for line in listed.splitlines():
        name, rows, layouts, since, traits = line.split("\t")
        cases.append(Case(name, rows.split(","), int(layouts), int(since), int(traits)))
    return cases


def row_problems(cases, pending):
    rows = read_table("rows.txt")
    seen = {row for case in cases for row in case.rows}
    names = collections.Counter(case.name for case in cases)
    return ([f"no case for row {row}: {rows[row]}" for row in rows if row not in seen] +
            [f"case with unknown row {row}" for row in sorted(seen - set(rows))] +
            [f"{number} cases are called {name}" for name, number in names.items() if number > 1] +
            [f"pending.txt names {name}, which is no case" for name in pending if name not in names])


def versions(args):
    """Layouts with other emulated NCCLs: (version code, layout)."""
    folder = os.path.dirname(args.libraries.rstrip("/"))
    for name in sorted(os.listdir(folder)):
        if name.startswith("nccl-") and os.path.exists(os.path.join(folder, name, "libnccl.so.2")):
            number = name.removeprefix("nccl-")
            major, minor = number.split(".")[:2]
            yield int(major) * 10000 + int(minor) * 100 + 99, Layout(
                VERSIONS_BIT, f"NCCL {number}", 3, True, ["--layout", "2,1", "--nccl", number], [])


class Run:
    """One mode's logs: per case and rank a list of lines; per case the lines of the counters."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.logs = collections.defaultdict(lambda: [None] * ranks)
        self.finished = set()
        self.counters = collections.defaultdict(lambda: ([], []))
        self.output = {}


def read_log(path, rank, run, sizes):
    if not os.path.exists(path):
        return
    name = None
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("== "):
                name = line[3:]
                run.logs[name][rank] = []
            elif line.startswith("-- "):
                run.finished.add((name, rank))
            elif line.startswith("# sizes"):
                sizes[name] = [int(size) for size in line.split()[2:]]
            elif name is not None:
                run.logs[name][rank].append(line)


def read_counters(paths, sizes, run):
    before = [0] * len(paths)
    for name, now in sizes.items():
        for kind, path in enumerate(paths):
            if os.path.exists(path):
                with open(path, "rb") as file:
                    file.seek(before[kind])
                    text = file.read(now[kind] - before[kind]).decode()
                run.counters[name][kind].extend(map(json.loads, text.splitlines()))
        before = now


def start(args, layout, names, preload, folder):
    """Runs cases in one start of the program; returns the Run."""
    os.makedirs(folder, exist_ok=True)
    files = [os.path.join(folder, kind) for kind in ("nccl", "own")]
    log = os.path.join(folder, "log")
    command = [args.launcher, "--timeout", "400", "--tag-output",
               "--env", f"EMULATOR_NCCL_STATS={files[0]}", "--env", f"RAILYARD_STATS={files[1]}",
               "--env", "RAILYARD_TRANSPORT=tcp", "--env", "RAILYARD_BUFFER_MB=8"] + layout.launch
    if preload:
        command += ["--preload", args.preload]
    command += ["--", args.program, "--log", log] + layout.program
    command += ["--watch", files[0], "--watch", files[1], "--"] + names
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    run, sizes = Run(layout.ranks), {}
    for rank in range(layout.ranks):
        read_log(f"{log}.{rank}", rank, run, sizes)
    read_counters(files, sizes, run)
    if done.returncode != 0:
        text = done.stdout.decode(errors="replace")[-3000:]
        for name in names:
            run.output[name] = (f"exit status {done.returncode}: {shlex.join(command[:-len(names)])}"
                                f" {name}\n{text}")
    return run


def ended(run, name):
    return all((name, rank) in run.finished for rank in range(run.ranks))


def run_all(args, layout, names, preload, folder):
    """Runs all cases, with a new start after each one that ends the program."""
    whole, rest, number = Run(layout.ranks), list(names), 0
    while rest:
        run = start(args, layout, rest, preload, os.path.join(folder, str(number)))
        number += 1
        done = [name for name in rest if ended(run, name)]
        broken = [name for name in rest if name not in done][:1]
        for name in done + broken:
            whole.logs[name], whole.counters[name] = run.logs[name], run.counters[name]
            if name in broken:
                whole.output[name] = run.output.get(name, "did not end")
            else:
                whole.finished |= {(name, rank) for rank in range(run.ranks)}
        rest = rest[len(done) + len(broken):]
    return whole


def first_difference(plain, own):
    for number in range(max(len(plain), len(own))):
        a = plain[number] if number < len(plain) else "(nothing)"
        b = own[number] if number < len(own) else "(nothing)"
        if a != b:
            return number + 1, a, b
    return None


def log_problems(name, plain, own):
    problems = []
    for rank, (a, b) in enumerate(zip(plain.logs[name], own.logs[name])):
        a, b = a or [], b or []
        difference = first_difference(a, b)
        if difference:
            line, without, with_it = difference
            problems.append(f"rank {rank}, line {line}: plain:   {without}")
            problems.append(f"rank {rank}, line {line}: preload: {with_it}")
        for mode, lines in (("plain", a), ("preload", b)):
            problems += [f"rank {rank}, {mode}: {line}" for line in lines if line.startswith("WRONG")]
    return problems


def total(lines, counters):
    return tuple(sum(line.get(f"{name}_{unit}", 0) for line in lines for name in counters)
                 for unit in ("messages", "bytes"))


def counter_problems(case, layout, plain, own):
    expected = total(plain.counters[case.name][0], NCCL_COUNTERS)
    by_nccl = total(own.counters[case.name][0], NCCL_COUNTERS)
    carried = total(own.counters[case.name][1], OWN_COUNTERS)
    said = (f"messages and bytes: plain NCCL carried {expected}; with the library NCCL carried "
            f"{by_nccl}, the library {carried}")
    if case.traits & (UNCOUNTED | LATE):
        return []
    if (by_nccl[0] + carried[0], by_nccl[1] + carried[1]) != expected:
        return [said]
    if not layout.taken:
        return [said] if carried[0] > 0 else []
    if case.traits & SHARED:
        return []
    return [said] if by_nccl[0] > 0 else []


def late_problems(cases, layout, own):
    """Whether the library carried the messages of those cases that cannot be told apart."""
    late = [case.name for case in cases if case.traits & LATE]
    by_nccl = sum(total(own.counters[name][0], NCCL_COUNTERS)[0] for name in late)
    carried = sum(total(own.counters[name][1], OWN_COUNTERS)[0] for name in late)
    if not late or (carried > 0) == layout.taken and (by_nccl > 0) != layout.taken:
        return []
    return [f"late cases: NCCL carried {by_nccl} messages, the library {carried}"]


def is_absent(name, run):
    return any(line.startswith("absent: ") for lines in run.logs[name] for line in lines or [])


def judge(case, layout, plain, own):
    """(what is wrong, whether the case had nothing to show)"""
    problems = []
    for mode, run in (("plain", plain), ("preload", own)):
        if not ended(run, case.name):
            problems += [f"{mode}: did not end: {run.output.get(case.name, '')}"]
    problems += log_problems(case.name, plain, own)
    if not problems:
        problems += counter_problems(case, layout, plain, own)
    return problems, is_absent(case.name, plain)


def compare(args, code, layout, cases, folder, tally):
    cases = [case for case in cases if case.layouts & layout.bit and case.since <= code]
    if not cases:
        return
    names, where = [case.name for case in cases], layout.name.replace(" ", "-")
    began = time.monotonic()
    plain = run_all(args, layout, names, False, os.path.join(folder, where + ".plain"))
    own = run_all(args, layout, names, True, os.path.join(folder, where + ".preload"))
    print(f"== {layout.name}: {len(cases)} cases, {time.monotonic() - began:.1f} s")
    for problem in late_problems(cases, layout, own):
        print(f"FAILED {layout.name}: {problem}")
        tally["FAILED"] += 1
    for case in cases:
        problems, absent = judge(case, layout, plain, own)
        result = "FAILED" if problems else "skipped" if absent else "ok"
        tally[result] += 1
        print(f"{result} {case.name} ({layout.name})" +
              (": not in this NCCL" if result == "skipped" else ""))
        for problem in problems:
            print("    " + problem.replace("\n", "\n    "))


def prove(args, folder):
    """Every way to be unlike must be found, and the same case without it must not."""
    layout, found = LAYOUTS[0], True
    for what in ("nothing", "result", "byte", "error", "end", "carrier"):
        case = Case(f"{UNLIKE_CASE}-{what}", [], 1, 0, 0)
        runs = [run_all(args, layout, [case.name], mode and what != "carrier",
                        os.path.join(folder, f"{what}.{mode}")) for mode in (False, True)]
        problems = judge(case, layout, *runs)[0]
        right = bool(problems) == (what != "nothing")
        found = found and right
        print(f"{'ok' if right else 'FAILED'} {what}: {'; '.join(problems)[:200]}")
    return 0 if found else 1


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        if args.prove:
            return prove(args, folder)
        cases, pending = read_cases(args), read_table("pending.txt")
        tally = collections.Counter(ok=0, FAILED=0, skipped=0)
        for problem in row_problems(cases, pending):
            print(f"FAILED {problem}")
            tally["FAILED"] += 1
        for case in cases:
            if case.name in pending and not args.pending:
                print(f"skipped {case.name}: {pending[case.name]}")
                tally["skipped"] += 1
        chosen = [case for case in cases if (args.pending or case.name not in pending) and
                  (not args.case or case.name in args.case)]
        for code, layout in [(22899, layout) for layout in LAYOUTS] + list(versions(args)):
            if not args.layout or layout.name in args.layout:
                compare(args, code, layout, chosen, folder, tally)
    print(f"{len(cases)} cases, {len({row for case in cases for row in case.rows})} rows")
    print(f"{tally['ok']} passed, {tally['FAILED']} failed, {tally['skipped']} skipped")
    return 1 if tally["FAILED"] or not tally["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())

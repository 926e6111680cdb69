#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases, for tests/run.sh.

  tally.py --name NAME --status S testlog.json   one line of counts for a run of `meson test`
  tally.py --name NAME --status S --lines FILE   the same for a program that ends "N passed, N failed"
  tally.py --sum COUNTS                          prints all lines and their sum, last

A Meson test counts as the cases that it says it ran: GoogleTest's summary, or a closing line
"N passed, N failed[, N skipped]"; else as one. A test that failed without saying which case did,
say by a crash, counts as one failure more. Logs of failed tests go to stderr.
"""

import argparse
import json
import re
import sys

CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.MULTILINE)
GTEST = re.compile(r"^\[  (PASSED|FAILED|SKIPPED) *\] (\d+) tests?[.,]", re.MULTILINE)
BAD = ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS")


def cases(output):
    """(passed, failed, skipped) as the output says, or None."""
    closing = CLOSING.findall(output)
    if closing:
        return [int(number or 0) for number in closing[-1]]
    found = dict.fromkeys(("PASSED", "FAILED", "SKIPPED"), 0)
    for word, number in GTEST.findall(output):
        found[word] = int(number)
    return list(found.values()) if any(found.values()) else None


def count_test(output, ok, skipped=False):
    if skipped:
        return [0, 0, 1]
    counts = cases(output)
    if counts is None:
        return [1, 0, 0] if ok else [0, 1, 0]
    if not ok and counts[1] == 0:
        counts[1] = 1
    return counts


def meson_log(path, totals):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            test = json.loads(line)
            ok = test["result"] not in BAD
            output = test.get("stdout") or ""
            counts = count_test(output, ok, test["result"] == "SKIP")
            totals[:] = [a + b for a, b in zip(totals, counts)]
            if not ok:
                print(f"\n---- {test['name']}: {test['result']}", output[-30000:],
                      (test.get("stderr") or "")[-30000:], sep="\n", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name")
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--lines")
    parser.add_argument("--sum")
    parser.add_argument("logs", nargs="*")
    args = parser.parse_args()
    if args.sum:
        return print_sum(args.sum)
    totals = [0, 0, 0]
    if args.lines:
        with open(args.lines, encoding="utf-8", errors="replace") as text:
            totals = count_test(text.read(), args.status == 0)
    else:
        for path in args.logs:
            meson_log(path, totals)
        if not args.logs or (args.status != 0 and totals[1] == 0):
            totals[1] += 1
    print(args.name, *totals, sep="\t")
    return 0


def print_sum(path):
    totals = [0, 0, 0]
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            name, *numbers = line.rstrip("\n").split("\t")
            numbers = [int(number) for number in numbers]
            totals = [a + b for a, b in zip(totals, numbers)]
            print(f"{name}: {numbers[0]} passed, {numbers[1]} failed, {numbers[2]} skipped")
    skipped = f", {totals[2]} skipped" if totals[2] else ""
    print(f"{totals[0]} passed, {totals[1]} failed{skipped}")
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())

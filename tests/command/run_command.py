#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command `railyard`: what it sets, passes on, returns and says.

  run_command.py --command FILE --program FILE --launcher FILE --version VERSION

PROGRAM is the interception program of tests/integration. Each check is one test; the last line is
"N passed, N failed".
"""

import argparse
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checks import check, expect, run  # noqa: E402  pylint: disable=wrong-import-position


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.nccl = os.path.join(folder, "nccl")
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("RAILYARD_", "NCCL_", "LD_PRELOAD"))}

    def railyard(self, *arguments, **variables):
        return subprocess.run([self.args.command, *arguments], capture_output=True, text=True,
                              check=False, timeout=120, env=self.environment | variables)

    def job(self, *options, launch=("--layout", "2,2"), scenario="plain"):
        if os.path.exists(self.nccl):
            os.unlink(self.nccl)
        return self.railyard(
            "run", *options, "--", self.args.launcher, "--timeout", "100", *launch,
            "--env", f"EMULATOR_NCCL_STATS={self.nccl}", "--", self.args.program, scenario)

    def nccl_bytes(self):
        """Point-to-point bytes that the emulated NCCL carried itself."""
        with open(self.nccl, encoding="utf-8") as lines:
            return sum(value for line in lines for name, value in json.loads(line).items()
                       if name.startswith("p2p_") and name.endswith("_bytes"))


@check
def says_its_version(bench):
    done = bench.railyard("--version")
    expect(done.returncode == 0 and bench.args.version in done.stdout, done)


@check
def explains_itself(bench):
    expect("run" in bench.railyard("--help").stdout, "--help names no subcommand")
    expect("--transport" in bench.railyard("run", "--help").stdout, "run --help names no option")


@check
def refuses_wrong_use(bench):
    for arguments, word in ((), "Subcommands"), (("run",), "--"), (("fly",), "fly"), \
            (("run", "--fly", "--", "true"), "--fly"), \
            (("run", "--transport", "pigeon", "--", "true"), "pigeon"), \
            (("run", "--stats", "/nowhere/%r", "--", "true"), "--stats"), \
            (("run", "--library", "/nowhere.so", "--", "true"), "/nowhere.so"):
        done = bench.railyard(*arguments)
        expect(done.returncode == 2 and word in done.stdout + done.stderr, arguments, done)


@check
def keeps_the_exit_status(bench):
    expect(bench.railyard("run", "--", "sh", "-c", "exit 7").returncode == 7)
    expect(bench.railyard("run", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9)
    done = bench.railyard("run", "--", "/no/such/program")
    expect(done.returncode == 127 and "/no/such/program" in done.stderr, done)


@check
def passes_signals_on(bench):
    program = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen([bench.args.command, "run", "--quiet", "--", "sh", "-c", program],
                          stdout=subprocess.PIPE, text=True, env=bench.environment) as process:
        expect(process.stdout.readline() == "ready\n")
        process.send_signal(signal.SIGTERM)
        expect(process.stdout.readline() == "caught\n")
        expect(process.wait(timeout=60) == 5)


@check
def preloads_before_others(bench):
    done = bench.railyard("run", "--comms", "all", "--", "sh", "-c",
                          "echo $LD_PRELOAD; echo $RAILYARD_COMMS; echo $RAILYARD_STATS",
                          LD_PRELOAD="libm.so.6")
    preload, comms, stats = done.stdout.splitlines()
    expect(preload.endswith("/librailyard.so:libm.so.6"), preload)
    expect(comms == "all" and stats and not os.path.exists(stats), comms, stats)


@check
def says_when_nothing_was_intercepted(bench):
    expect("nothing was intercepted" in bench.railyard("run", "--", "true").stderr)
    expect(bench.railyard("run", "--quiet", "--", "true").stderr == "")


@check
def says_what_was_carried(bench):
    done = bench.job("--transport", "tcp")
    expect(done.returncode == 0, done)
    expect("taken over" in done.stderr and "over tcp" in done.stderr, done.stderr)
    expect(bench.nccl_bytes() == 0, "NCCL carried", bench.nccl_bytes())


@check
def writes_the_summary_as_json(bench):
    path, stats = os.path.join(bench.folder, "json"), os.path.join(bench.folder, "stats")
    with open(stats, "w", encoding="utf-8") as file:
        file.write('{"rank": 0, "ranks": 2, "left": "of an earlier run"}\n')
    done = bench.job("--transport", "tcp", "--json", path, "--stats", stats)
    expect(done.returncode == 0 and "taken over" not in done.stderr, done)
    with open(path, encoding="utf-8") as file:
        summary = json.load(file)
    with open(stats, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][1:]
    expect(lines, "--stats keeps nothing")
    carried = sum(line.get("phase1_bytes", 0) for line in lines)
    expect(summary["phase1"]["bytes"] == carried > 0, summary, carried)
    expect(summary["phase1"] == summary["phase2"] and not summary["left"], summary)


@check
def says_what_was_left_and_why(bench):
    done = bench.job("--transport", "tcp", launch=("--layout", "3"))
    expect(done.returncode == 0 and "left to NCCL, 3 ranks" in done.stderr, done)
    expect(bench.nccl_bytes() > 0, "NCCL carried nothing")


@check
def explains_a_cluster(bench):
    ended = bench.railyard("explain", "--nodes", "4", "--gpus", "8", "--rank", "9", "--bytes", "1M",
                           "--link-gbps", "8", "--qps", "2", "--json")
    expect(ended.returncode == 0, ended.stderr)
    found = json.loads(ended.stdout)
    expect(found["taken_over"] and found["rail"] == 1 and found["node"] == 1, found)
    expect(found["relays"] == [1, 17, 25] and found["relays_for"] == [1, 17, 25], found)
    expect(found["links"] == 3 and found["queue_pairs"] == 6, found)
    # 24 messages of 1 MiB at 10^9 bytes per second; 21 of 24 go to other rails.
    expect(abs(found["times"][0]["expected_us"] - 24 * 1048.576) < 0.1, found)
    expect(found["across_rails_without_railyard"] == 0.875, found)
    text = bench.railyard("explain", "--nodes", "4", "--gpus", "8").stdout
    expect("taken over" in text and "3 queue pairs" in text and "16 MiB" in text, text)


@check
def explains_what_stays_with_nccl(bench):
    for options, why in ((["--layout", "1,1"], "no node has more than one rank"),
                         (["--layout", "8"], "all ranks are on one node"),
                         (["--layout", "2,2", "--no-nvlink"], "has no NVLink"),
                         (["--layout", "2,2", "--comms", "off"], "RAILYARD_COMMS=off"),
                         (["--nodes", "512", "--gpus", "8", "--buffer-mb", "1"],
                          "too little buffer memory for 4096 ranks")):
        ended = bench.railyard("explain", *options)
        expect(ended.returncode == 0 and "left to NCCL" in ended.stdout and why in ended.stdout,
               options, ended.stdout, ended.stderr)


@check
def explains_past_runs(bench):
    stats = os.path.join(bench.folder, "stats")
    ended = bench.job("--stats", stats, "--transport", "tcp")
    expect(ended.returncode == 0, ended.stderr)
    told = bench.railyard("explain", "--stats", stats)
    expect(told.returncode == 0 and "taken over" in told.stdout, told.stdout, told.stderr)
    counts = json.loads(bench.railyard("explain", "--json", "--stats", stats).stdout)
    expect(counts["phase1"]["bytes"] > 0 and counts["taken_over_ranks"] == 4, counts)


@check
def refuses_what_it_cannot_explain(bench):
    for options, why in (([], "say what the cluster is like"),
                         (["--layout", "2,x"], "--layout"),
                         (["--layout", "2,2", "--rank", "4"], "--rank 4 is not among the 4 ranks"),
                         (["--layout", "2,3", "--rails", "0,1"], "--rails has 2 entries"),
                         (["--nodes", "60000", "--gpus", "8"], "more than the 65536"),
                         (["--stats", "/nonexistent"], "cannot read /nonexistent")):
        ended = bench.railyard("explain", *options)
        expect(ended.returncode == 2 and why in ended.stderr, options, ended.stdout, ended.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("command", "program", "launcher", "version"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    return run(args, Bench)


if __name__ == "__main__":
    sys.exit(main())

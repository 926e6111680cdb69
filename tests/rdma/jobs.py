#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole jobs over verbs, inside the soft-RoCE machine, as its root.

  jobs.py queue_pairs          a rank has one queue pair per other node, as the kernel counts them
  jobs.py outage               a link taken down in mid-transfer: all ranks learn of it, with reasons
  jobs.py without_libibverbs   the plugin works over tcp, and says why verbs cannot be had

PROGRAMS in the environment is the folder that suites.sh has put the programs into.
"""

import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

PROGRAMS = os.environ["PROGRAMS"]
LIMIT_S = 240  # for one job; the emulated machine may be slow, a hang is for ever
HOLDING = "holding: rank "


class Failure(Exception):
    """What is wrong, in words."""


def check(condition, what):
    if not condition:
        raise Failure(what)


class Job:
    """The interception program on an emulated cluster; each rank has a soft-RoCE device of its own.
    What the ranks write is shown, and can be waited for."""

    def __init__(self, scenario, nodes, gpus, variables):
        command = [f"{PROGRAMS}/launch/emulate", "--nodes", str(nodes),
                   "--gpus", str(gpus), "--timeout", str(LIMIT_S), "--tag-output", "--preload",
                   f"{PROGRAMS}/launch/librailyard.so", "--env", "RAILYARD_BUFFER_MB=8"]
        for name, value in variables.items():
            command += ["--env", f"{name}={value}"]
        for rank in range(nodes * gpus):
            first = rank // gpus * gpus + 1
            devices = ",".join(f"rxe{first + i}" for i in range(gpus))
            command += ["--env-on", f"{rank}:NCCL_IB_HCA=={devices}"]
        command += ["--", f"{PROGRAMS}/launch/interception", scenario]
        self.lines = []
        self._changed = threading.Condition()
        # The launcher ends the job after LIMIT_S, so nothing here needs a limit of its own.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            print(line, end="", flush=True)
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.lines.append("")  # the end; wakes who waits
            self._changed.notify_all()

    def saying(self, text):
        return [line for line in self.lines if text in line]

    def wait_for(self, text, times):
        """Returns once that many lines hold `text`."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self.saying(text)) >= times or self.lines[-1:] == [""])
            check(len(self.saying(text)) >= times, f"the job ended before it said {text!r}")

    def end(self):
        status = self._process.wait()
        self._reader.join()
        check(status != 124, "the job hung")
        check(status == 0, f"the job ended with status {status}")


def total(path, names):
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as lines:
        return sum(json.loads(line).get(name, 0) for line in lines for name in names)


def process_of(thread):
    with open(f"/proc/{thread}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Tgid:"))


def kernel_queue_pairs():
    """How many reliable connections each process has. The kernel names the thread that made it."""
    shown = subprocess.run(["rdma", "-j", "resource", "show", "qp"], check=True,
                           stdout=subprocess.PIPE).stdout
    return collections.Counter(process_of(pair["pid"]) for pair in json.loads(shown)
                               if pair.get("type") == "RC" and "pid" in pair)


def queue_pairs(nodes, gpus):
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "hold")
        os.mkfifo(pipe)
        job = Job("hold", nodes, gpus, {"RAILYARD_TRANSPORT": "verbs", "HOLD": pipe})
        try:
            job.wait_for(HOLDING, nodes * gpus)
            found = kernel_queue_pairs()
        finally:
            with open(os.open(pipe, os.O_RDWR), "wb"):  # whoever comes to the pipe now goes on
                job.end()
    for line in job.saying(HOLDING):
        rank, process = line.split(HOLDING)[1].split(" is process ")
        print(f"{nodes} nodes of {gpus}, rank {rank}: {found[int(process)]} queue pairs")
        check(found[int(process)] == nodes - 1, f"rank {rank} should have {nodes - 1} queue pairs")


def transmitted(device):
    with open(f"/sys/class/net/{device}/statistics/tx_bytes", encoding="ascii") as counter:
        return int(counter.read())


def outage():
    job = Job("outage", 2, 2, {"RAILYARD_TRANSPORT": "verbs", "NCCL_IB_RETRY_CNT": 4,
                               "NCCL_IB_TIMEOUT": 14})
    job.wait_for("exchanging: rank ", 4)
    before = transmitted("v1")
    while transmitted("v1") < before + (1 << 20) and job.lines[-1] != "":
        time.sleep(0.01)
    subprocess.run(["ip", "link", "set", "p1", "down"], check=True)
    cut = time.monotonic()
    try:
        job.end()
    finally:
        subprocess.run(["ip", "link", "set", "p1", "up"], check=True)
    print(f"all ranks ended {time.monotonic() - cut:.1f} s after the cut")
    check(len(job.saying("outage: rank ")) == 4, "not all ranks were told")
    # The two ends of the broken link name each other and the rail; rank 0 of node 0 is on rail 0.
    for rank, peer in (0, 2), (2, 0):
        said = [line for line in job.saying("railyard") if line.startswith(f"[{rank}]")]
        check(any(f"rank {peer}" in line and "rail 0" in line for line in said),
              f"rank {rank} does not name rank {peer} and rail 0")


@contextlib.contextmanager
def libibverbs_hidden():
    known = subprocess.run(["ldconfig", "-p"], check=True, text=True, stdout=subprocess.PIPE).stdout
    files = {os.path.realpath(line.split(" => ")[1]) for line in known.splitlines()
             if line.split()[0] == "libibverbs.so.1"}
    check(files, "libibverbs.so.1 is nowhere: nothing to hide")
    for path in files:
        os.rename(path, path + ".hidden")
    try:
        yield
    finally:
        for path in files:
            os.rename(path + ".hidden", path)


def without_libibverbs(transport, carried_by_us):
    with tempfile.TemporaryDirectory() as folder, libibverbs_hidden():
        stats = {"EMULATOR_NCCL_STATS": f"{folder}/nccl", "RAILYARD_STATS": f"{folder}/own"}
        job = Job("ends", 2, 2, {"RAILYARD_TRANSPORT": transport, "RAILYARD_DEBUG": "info", **stats})
        job.end()
        ours = total(stats["RAILYARD_STATS"], ("phase1_bytes", "local_bytes", "self_bytes"))
        nccl = total(stats["EMULATOR_NCCL_STATS"],
                     ("p2p_internode_bytes", "p2p_intranode_bytes", "p2p_self_bytes"))
    print(f"{transport}: {ours} bytes carried by railyard, {nccl} by NCCL")
    check((ours > 0, nccl > 0) == (carried_by_us, not carried_by_us), "the wrong one carried them")
    if not carried_by_us:
        check(any("no RDMA transport" in line and "libibverbs.so.1" in line for line in job.lines),
              "the log does not say that libibverbs.so.1 is missing")


TESTS = {
    "queue_pairs": [lambda: queue_pairs(2, 2), lambda: queue_pairs(3, 2)],
    "outage": [outage],
    "without_libibverbs": [lambda: without_libibverbs("tcp", True),
                           lambda: without_libibverbs("auto", False)],
}


def main():
    passed, failed = 0, 0
    for test in TESTS[sys.argv[1]]:
        try:
            test()
            passed += 1
        except Failure as failure:
            print(f"FAILED: {failure}")
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

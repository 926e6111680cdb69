#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launcher's networks: what they are made of, which way messages take over them, and that
nothing of them is left.

  fabrics.py --launcher FILE --program FILE --fuzz FILE --preload FILE

PROGRAM is the interception program, FUZZ exchange_fuzz. Each check is one test; the last line is "N passed, N failed". Where the
system lets nobody make network namespaces, all are skipped.
"""

import argparse
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checks import CHECKS, check, expect, run  # noqa: E402  pylint: disable=wrong-import-position

RAILYARD = ["--env", "RAILYARD_TRANSPORT=tcp", "--env", "RAILYARD_TCP_IFNAME=rail"]
SIZES = ["--nodes", "2", "--gpus", "2"]
# Prints name, bytes received and bytes sent of each interface. /sys may show another namespace's.
COUNTS = "tr : ' ' < /proc/net/dev | awk '$1 ~ /^(rail|mgmt)/ {print $1, $2, $10}'"


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.stats = {kind: os.path.join(folder, kind) for kind in ("nccl", "railyard")}

    def launch(self, *arguments, sizes=None):
        return subprocess.run([self.args.launcher, *(sizes or SIZES), "--timeout", "100", *arguments],
                              capture_output=True, text=True, check=False, timeout=150)

    def shell(self, fabric, script, *options, sizes=None):
        ended = self.launch("--fabric", fabric, *options, "--", "sh", "-c", script, sizes=sizes)
        expect(ended.returncode == 0, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout.splitlines()

    def traffic(self, fabric, program, *options):
        """Runs the program; then, for every node, {interface: (bytes received, bytes sent)}."""
        script = f"{program} && {COUNTS} | sed s/^/$GROUP_RANK\\ /"
        lines = self.shell(fabric, script, *options,
                           "--env", f"EMULATOR_NCCL_STATS={self.stats['nccl']}",
                           "--env", f"RAILYARD_STATS={self.stats['railyard']}")
        nodes = [{}, {}]
        for line in lines:
            node, name, received, sent = line.split()
            # The last rank of a node sees all that its node has received.
            known = nodes[int(node)].get(name, (0, 0))
            nodes[int(node)][name] = (max(known[0], int(received)), max(known[1], int(sent)))
        return nodes

    def carried(self, kind, counter):
        if not os.path.exists(self.stats[kind]):
            return 0
        with open(self.stats[kind], encoding="utf-8") as lines:
            return sum(json.loads(line).get(counter, 0) for line in lines)


def expect_rails_carry(nodes, messages):
    rails = [counts for node in nodes for name, counts in node.items() if name != "mgmt"]
    expect(messages > 20_000, messages)
    expect(sum(received for received, _ in rails) > messages, nodes, "messages", messages)
    expect(all(min(counts) > 5_000 for counts in rails), "every NIC is used", nodes)
    expect(sum(node["mgmt"][0] for node in nodes) < 200_000, "management is for set-up", nodes)


@check
def a_node_has_a_link_per_gpu_and_a_namespace(bench):
    lines = bench.shell("flat", "echo $RANK $(readlink /proc/self/ns/net) $(grep -o '[a-z]*[0-9]*:' /proc/net/dev)",
                        sizes=["--layout", "2,1,1"])
    places = {int(line.split()[0]): line.split()[1:] for line in lines}
    expect(places[0] == places[1], "ranks of one node", places)
    expect(len({place[0] for place in places.values()}) == 3, "three nodes", places)
    expect(places[0][1:] == ["lo:", "mgmt:", "rail0:", "rail1:"], places)
    expect(places[3][1:] == ["lo:", "mgmt:", "rail0:"], places)


@check
def links_have_the_rate_that_was_asked_for(bench):
    lines = bench.shell("flat", "[ $RANK != 0 ] || tc qdisc show dev rail1", "--link-mbit", "40")
    expect(any("tbf" in line and "rate 40Mbit" in line for line in lines), lines)


@check
def ranks_are_told_where_things_are(bench):
    lines = bench.shell("rails-2", "[ $RANK != 3 ] || echo $MASTER_ADDR $EMULATOR_NODES "
                                   "$NCCL_SOCKET_IFNAME $EMULATOR_NET_IFNAME")
    expect(lines == ["10.128.0.1 10.128.0.1,10.128.0.2 mgmt rail"], lines)


@check
def one_program_can_start_the_others(bench):
    lines = bench.shell("flat", 'for net in $(echo $EMULATOR_NAMESPACES | tr , " "); do '
                        "nsenter --net=$net ip -br -4 addr show dev rail1; done", "--once")
    expect([line.split()[2] for line in lines] == ["10.1.0.1/16", "10.1.0.2/16"], lines)


@check
def nccls_messages_take_the_rails(bench):
    nodes = bench.traffic("rails-4", f"{bench.args.fuzz} --seed 7 --exchanges 6")
    expect_rails_carry(nodes, bench.carried("nccl", "p2p_internode_bytes"))


@check
def railyards_messages_take_the_rails(bench):
    nodes = bench.traffic("rail-only", f"{bench.args.program} plain", "--preload",
                          bench.args.preload, *RAILYARD)
    expect(bench.carried("nccl", "p2p_internode_bytes") == 0, "NCCL carried some")
    expect_rails_carry(nodes, bench.carried("railyard", "phase1_bytes"))


@check
def rails_that_are_not_joined_stop_plain_nccl(bench):
    ended = bench.launch("--fabric", "rail-only", "--", bench.args.program, "plain")
    expect(ended.returncode not in (0, 124), "an error, and at once", ended.returncode)


@check
def relaying_nccl_keeps_to_the_rails(bench):
    nodes = bench.traffic("rail-only", f"{bench.args.program} plain", "--env",
                          "EMULATOR_NCCL_RELAY=1")
    expect_rails_carry(nodes, bench.carried("nccl", "p2p_internode_bytes"))


@check
def an_interface_that_is_not_there_is_named(bench):
    ended = bench.launch("--fabric", "flat", "--preload", bench.args.preload, "--env",
                         "RAILYARD_TRANSPORT=tcp", "--env", "RAILYARD_TCP_IFNAME=eth9", "--",
                         bench.args.fuzz, "--seed", "7", "--exchanges", "1")
    expect(ended.returncode == 0, "NCCL goes on", ended.stderr)
    expect("RAILYARD_TCP_IFNAME: no network interface fits 'eth9'" in ended.stderr, ended.stderr)


@check
def wrong_arguments_are_refused(bench):
    ended = bench.launch("--fabric", "round", "--", "true")
    expect(ended.returncode == 2 and "flat, rails-2, rails-4, rail-only" in ended.stderr,
           ended.stderr)
    ended = bench.launch("--fabric", "flat", "--link-mbit", "0", "--", "true")
    expect(ended.returncode == 2 and "--link-mbit" in ended.stderr, ended.stderr)
    ended = bench.launch("--fabric", "flat", "--", "true", sizes=["--layout", "129,1"])
    expect(ended.returncode == 2 and "at most 128 links" in ended.stderr, ended.stderr)


@check
def nothing_is_left(bench):
    def spaces():
        listed = subprocess.run(["lsns", "-n", "-t", "net", "-o", "NS"], capture_output=True,
                                text=True, check=True)
        return set(listed.stdout.split())

    def links():
        with open("/proc/net/dev", encoding="utf-8") as lines:
            return sorted(line.split(":")[0].strip() for line in lines)

    before = spaces(), links()
    bench.shell("rails-2", "true")
    expect(bench.launch("--fabric", "flat", "--", "false").returncode == 1)
    ended = bench.launch("--fabric", "flat", "--", "sh", "-c", "[ $RANK != 0 ] || kill -9 $PPID; exec sleep 60")
    expect(ended.returncode == -9, ended.returncode)
    expect(spaces() <= before[0] and links() == before[1], before, spaces(), links())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    for name in ("launcher", "program", "fuzz", "preload"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        print("no network namespaces here: not root, or forbidden")
        print(f"0 passed, 0 failed, {len(CHECKS)} skipped")
        return 0
    return run(args, Bench)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a run of the trainer on plain NCCL with one through railyard.

  compare.py FOLDER [--json FILE]

FOLDER holds plain.json and railyard.json as moe_train writes them, plain.nccl and railyard.nccl
(what NCCL carried, a JSON line per communicator and rank) and railyard.stats (the same of
railyard). Prints a table. The exit status is 0 only if all parameters are identical and railyard,
not NCCL, carried all point-to-point messages of the second run.
"""

import argparse
import json
import os
import sys


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def sum_of_lines(path):
    """Adds up the numbers of all JSON lines; a file that nobody wrote counts as empty."""
    total = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in filter(str.strip, file):
                for key, value in json.loads(line).items():
                    if isinstance(value, (int, float)) and not isinstance(value, bool):
                        total[key] = total.get(key, 0) + value
    return total


def figures(folder, name):
    run = read_json(os.path.join(folder, name + ".json"))
    nccl = sum_of_lines(os.path.join(folder, name + ".nccl"))
    result = {key: run[key] for key in ("final_loss", "parameters_sha256", "step_ms_median")}
    result["first_loss"] = run["steps"][0]["loss"]
    result["alltoall_ms_median"] = run["alltoall_ms_median"]
    result["tokens_per_s"] = run["tokens_per_s"]
    for key in ("internode_bytes", "internode_messages", "intranode_bytes", "intranode_messages",
                "self_bytes"):
        result["nccl_" + key.replace("_", "_p2p_")] = nccl.get("p2p_" + key, 0)
    return result


def compare(folder):
    plain = figures(folder, "plain")
    railyard = figures(folder, "railyard")
    stats = sum_of_lines(os.path.join(folder, "railyard.stats"))
    for key in ("phase1_bytes", "phase2_bytes", "phase2_messages", "local_bytes", "self_bytes"):
        railyard[key] = stats.get(key, 0)
    railyard["internode_messages"] = stats.get("phase1_messages", 0)
    identical = plain["parameters_sha256"] == railyard["parameters_sha256"]
    return {"plain": plain, "railyard": railyard, "identical": identical}


def print_table(result):
    plain, railyard = result["plain"], result["railyard"]
    number = "{:,}".format
    rows = [
        ("", "plain NCCL", "railyard"),
        ("first loss", "{:.4f}".format(plain["first_loss"]),
         "{:.4f}".format(railyard["first_loss"])),
        ("final loss", "{:.6f}".format(plain["final_loss"]),
         "{:.6f}".format(railyard["final_loss"])),
        ("all parameters, sha256", plain["parameters_sha256"][:16],
         railyard["parameters_sha256"][:16]),
        ("inter-node messages by NCCL", number(plain["nccl_internode_p2p_messages"]),
         number(railyard["nccl_internode_p2p_messages"])),
        ("inter-node bytes by NCCL", number(plain["nccl_internode_p2p_bytes"]),
         number(railyard["nccl_internode_p2p_bytes"])),
        ("inter-node messages by railyard", "-", number(railyard["internode_messages"])),
        ("  phase 1 bytes, along the rail", "-", number(railyard["phase1_bytes"])),
        ("  phase 2 bytes, inside the node", "-", number(railyard["phase2_bytes"])),
        ("step, median", "{:.1f} ms".format(plain["step_ms_median"]),
         "{:.1f} ms".format(railyard["step_ms_median"])),
        ("  of it all-to-all", "{:.1f} ms".format(plain["alltoall_ms_median"]),
         "{:.1f} ms".format(railyard["alltoall_ms_median"])),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    print()
    for row in rows:
        print("{:<{}}  {:>{}}  {:>{}}".format(row[0], widths[0], row[1], widths[1], row[2],
                                              widths[2]).rstrip())
    print()
    same = "identical bit for bit" if result["identical"] else "DIFFERENT"
    print("all parameters of both runs: " + same)


def complaints(result):
    railyard = result["railyard"]
    if not result["identical"]:
        yield "the two runs ended with different parameters"
    if result["plain"]["nccl_internode_p2p_bytes"] == 0:
        yield "NCCL carried nothing between nodes in the plain run: were there two nodes?"
    # Messages inside the node count as well: on a communicator taken over NCCL carries none.
    if any(railyard["nccl_" + key] for key in
           ("internode_p2p_bytes", "intranode_p2p_bytes", "self_p2p_bytes")):
        yield "NCCL still carried point-to-point messages in the railyard run"
    if railyard["phase1_bytes"] == 0:
        yield ("railyard carried nothing between nodes; see its messages above, or run with "
               "RAILYARD_DEBUG=info")
    elif railyard["phase1_bytes"] != result["plain"]["nccl_internode_p2p_bytes"]:
        yield "railyard carried other bytes between nodes than NCCL did in the plain run"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    arguments = parser.parse_args()
    try:
        result = compare(arguments.folder)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file, indent=2)
                file.write("\n")
    except (OSError, ValueError, KeyError) as error:
        print("compare.py: {}: {}".format(type(error).__name__, error), file=sys.stderr)
        return 1
    print_table(result)
    failed = list(complaints(result))
    for complaint in failed:
        print("compare.py: " + complaint, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

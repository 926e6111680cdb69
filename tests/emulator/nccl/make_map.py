#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the version script of one version of NCCL: the names that it exports.

  make_map.py TABLE VERSION OUTPUT

TABLE is the list of NCCL's functions with the version that each came with. VERSION is a version
code, as ncclGetVersion returns it. The pncclX names are there from 2.16 on.
"""

import re
import sys

FIRST_WITH_P = 21600
# Exported though they are in no header, and under one name only.
INTERNAL = {"ncclResetDebugInitInternal": 22803}


def main():
    table, version, output = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with open(table, encoding="utf-8") as file:
        rows = re.findall(r"^ *[HTCP]\((nccl\w+), (\d+),", file.read(), re.MULTILINE)
    if not rows:
        sys.exit(f"{table} lists no functions")
    names = sorted(name for name, first in rows if int(first) <= version)
    if version >= FIRST_WITH_P:
        names += ["p" + name for name in names]
    names += [name for name, first in INTERNAL.items() if first <= version]
    with open(output, "w", encoding="utf-8") as file:
        file.write("{\n  global:\n")
        file.writelines(f"    {name};\n" for name in names)
        file.write("  local:\n    *;\n};\n")


if __name__ == "__main__":
    main()

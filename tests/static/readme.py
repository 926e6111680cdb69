#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the table of variables in README.md with the one the code prints.

  readme.py README.md PROGRAM [--write]     --write: put the code's table into the file instead
"""

import subprocess
import sys

BEGIN, END = "<!-- variables: begin -->\n", "<!-- variables: end -->\n"


def main():
    path, program = sys.argv[1:3]
    table = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if BEGIN not in text or END not in text:
        sys.exit(f"{path} lacks the lines {BEGIN.strip()} and {END.strip()}")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    wanted = before + BEGIN + table.rstrip("\n") + "\n" + END + after
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.write(wanted)
    elif wanted != text:
        sys.exit(f"the table of variables in {path} is not the code's; "
                 f"to update it: {' '.join(sys.argv)} --write")


if __name__ == "__main__":
    main()

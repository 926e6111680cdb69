#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the shape of the source tree: which room may include which, sizes, first lines, words.

  structure.py ROOT      prints every offence; exit status 1 if there is one
"""

import re
import subprocess
import sys
from pathlib import Path

# A room may include headers of itself and of these. Arrows point down only.
ROOMS = {
    "base": set(),
    "kernels": set(),
    "topology": {"base"},
    "device": {"base", "kernels"},
    "transport": {"base"},
    "exchange": {"base", "kernels", "topology", "device", "transport"},
    "comm": {"base", "kernels", "topology", "device", "transport", "exchange"},
    "intercept": {"base", "topology", "exchange", "comm"},
    "loader": {"base", "comm", "intercept"},
}
# Foreign headers, and the rooms (or folders) of plugin/ that may see them.
FOREIGN = {
    r"cuda(_runtime.*|_runtime_api)?\.h": ("device/", "kernels/"),
    r"nccl.*\.h": ("comm/", "intercept/", "loader/"),
    r"infiniband/.*": ("transport/verbs/",),
}
# Only the composition root picks a network; everyone else sees the contract.
BACKENDS = {"transport/tcp/": ("transport/tcp/", "comm/"),
            "transport/verbs/": ("transport/verbs/", "comm/")}
# Programs that must not know what they run under.
UNAWARE = ("examples/moe/", "perf/alltoall_perf", "tests/property/")

HEADER_LINES, SOURCE_LINES, TEST_LINES, FUNCTION_LINES = 250, 450, 600, 60
# Path (and function) -> why it may be longer.
EXEMPT = {}

CODE = (".cc", ".h", ".cu", ".cuh")
FORBIDDEN = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|(?<![\w.])/(work|root|home)/")


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        self.offences = []
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.splitlines()
        self.files = sorted(name for name in listed if (self.root / name).is_file())

    def lines(self, name):
        return (self.root / name).read_text(encoding="utf-8").splitlines()

    def offend(self, name, number, text):
        self.offences.append(f"{name}:{number}: {text}")


def check_includes(tree, name, lines):
    inside = name.removeprefix("plugin/")
    room = inside.split("/")[0]
    for number, line in enumerate(lines, 1):
        own = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        foreign = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if own:
            target = own.group(1)
            their_room = target.split("/")[0]
            if their_room != room and their_room not in ROOMS.get(room, set()):
                tree.offend(name, number, f"{room}/ must not include {their_room}/")
            for backend, allowed in BACKENDS.items():
                if target.startswith(backend) and not inside.startswith(allowed):
                    tree.offend(name, number, f"{backend} is hidden behind transport/transport.h")
        if foreign:
            for pattern, allowed in FOREIGN.items():
                if re.fullmatch(pattern, foreign.group(1)) and not inside.startswith(allowed):
                    tree.offend(name, number,
                                f"<{foreign.group(1)}> belongs to {' and '.join(allowed)} only")


def is_test(name):
    return name.endswith("_test.cc") or name.startswith(("tests/unit/", "tests/integration/"))


def check_size(tree, name, lines):
    limit = SOURCE_LINES
    if name.endswith((".h", ".cuh")):
        limit = HEADER_LINES if name.endswith(".h") else SOURCE_LINES
    if is_test(name):
        limit = TEST_LINES
    if len(lines) > limit and name not in EXEMPT:
        tree.offend(name, len(lines), f"{len(lines)} lines; {limit} are the limit: split it")


def functions(lines, indent, first=0, last=None):
    """(first line, last line) of functions defined at this indentation in formatted code."""
    last = len(lines) if last is None else last
    pad = " " * indent
    number = first
    while number < last:
        line = lines[number]
        starts = line.startswith(pad) and re.match(r"[A-Za-z_~\[]", line[indent:])
        if not starts or re.match(r"(namespace|extern|using|public|private|protected|case)\b",
                                  line[indent:]):
            number += 1
            continue
        end = number
        while end < last - 1 and not re.match(rf"{pad}(\}}|\S.*;\s*(//.*)?$)|.*;\s*(//.*)?$",
                                              lines[end]):
            if lines[end].rstrip().endswith("{"):
                while end < last - 1 and not lines[end].startswith(pad + "}"):
                    end += 1
                break
            end += 1
        head = line[indent:]
        if re.match(r"(template|struct|class|union|enum)\b", head) and indent == 0:
            yield from functions(lines, indent + 2, number + 1, end)
        if lines[end].rstrip() == pad + "}" and not re.match(r"(struct|class|union|enum)\b", head):
            yield number, end
        number = end + 1


def check_functions(tree, name, lines):
    limit = FUNCTION_LINES
    for start, end in functions(lines, 0):
        key = f"{name}:{lines[start].strip()}"
        if end - start + 1 > limit and key not in EXEMPT:
            tree.offend(name, start + 1,
                        f"a function of {end - start + 1} lines; {limit} are the limit")


def check_first_lines(tree, name, lines):
    spdx = "SPDX-License-Identifier: Apache-2.0"
    at = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= at or lines[at].strip("/# ") != spdx:
        tree.offend(name, at + 1, f"must be the line: {spdx}")
    if name.endswith((".h", ".cuh")) and "#pragma once" not in lines:
        tree.offend(name, 1, "has no #pragma once")


def check_words(tree, name, lines):
    for number, line in enumerate(lines, 1):
        found = FORBIDDEN.search(line)
        if found:
            tree.offend(name, number, f"must not say {found.group(0)}")
        if name.startswith(UNAWARE) and name.endswith(CODE) and "plugin/" not in line:
            if re.search(r"RAILYARD_|librailyard|ry::", line):
                tree.offend(name, number, "this program must not know of railyard")


def main():
    tree = Tree(sys.argv[1])
    code = 0
    for name in tree.files:
        if name == "tests/static/structure.py" or not name.endswith(
                CODE + (".py", ".sh", ".map", "meson.build", ".md")):
            continue
        lines = tree.lines(name)
        check_words(tree, name, lines)
        if name.endswith((".py", ".sh") + CODE):
            check_first_lines(tree, name, lines)
            check_size(tree, name, lines)
        if name.endswith(CODE):
            code += 1
            check_functions(tree, name, lines)
        if name.startswith("plugin/") and name.endswith(CODE):
            check_includes(tree, name, lines)
    print("\n".join(tree.offences))
    print(f"{code} files of code, {len(tree.offences)} offences")
    return 1 if tree.offences or code == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

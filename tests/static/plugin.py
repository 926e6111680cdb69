#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks on librailyard.so as a file and as a guest in other programs.

  plugin.py exports PLUGIN MAP        it defines exactly the names of the version script
  plugin.py dependencies PLUGIN       it needs nothing but libc, and is never unloaded
  plugin.py inert PLUGIN PROBE        programs that never use NCCL do not notice it
  plugin.py absent PLUGIN PROBE CALLER
                                      NCCL calls without any NCCL fail with one clear line
  plugin.py local PLUGIN PROBE CALLER DIR
                                      an NCCL loaded RTLD_LOCAL is found, and not more than it has
  plugin.py errors PLUGIN PROGRAM NAME=DIR...
                                      NCCL's own errors come through unchanged; DIR holds a
                                      libnccl.so.2, a missing one is skipped
"""

import os
import re
import subprocess
import sys
import tempfile

SKIPPED = 77  # what Meson takes for a skipped test
ALLOWED = re.compile(r"lib(c|m)\.so\.6|ld-linux.*\.so\.\d+")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run(command, preload=None, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAILYARD_", "NCCL_"))}
    environment.update(variables)
    if preload:
        environment["LD_PRELOAD"] = preload
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False,
                          timeout=120)


def expect(condition, message):
    if not condition:
        sys.exit(message)


def exports(plugin, map_file):
    with open(map_file, encoding="utf-8") as file:
        listed = set(re.findall(r"^\s+(\w+);", file.read(), re.M))
    defined = {line.split()[-1] for line in output("nm", "-D", "--defined-only", plugin).splitlines()}
    expect(listed, f"{map_file} lists nothing")
    expect(defined == listed, f"defined but not listed: {sorted(defined - listed)}; "
                              f"listed but not defined: {sorted(listed - defined)}")


def dependencies(plugin):
    dynamic = output("readelf", "-d", plugin)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    strange = [name for name in needed if not ALLOWED.fullmatch(name)]
    expect(not strange, f"needs {strange}")
    expect("NODELETE" in dynamic, "could be unloaded: NODELETE is missing")
    loaded = output("ldd", plugin)
    for name in ("cuda", "nccl", "ibverbs", "stdc++"):
        expect(name not in loaded, f"loads {name}:\n{loaded}")


def inert(plugin, probe):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        settings = {"RAILYARD_DEBUG": "trace", "RAILYARD_DEBUG_FILE": log}
        for command in (["/bin/ls", "-l", plugin], [probe]):
            plain, preloaded = run(command), run(command, plugin, **settings)
            for what in ("returncode", "stdout", "stderr"):
                a, b = getattr(plain, what), getattr(preloaded, what)
                expect(a == b, f"{command}: {what} was {a!r}, preloaded {b!r}")
            expect(plain.returncode == 0, f"{command} failed: {plain.stderr}")
        expect(not os.path.exists(log), "a log file was opened")


def absent(plugin, probe, caller):
    done = run([probe, caller, "call_group_start", "call_group_start", "has_send"], plugin)
    expect(done.stdout == "2\n2\n0\n",
           f"expected ncclSystemError twice and no ncclSend, got {done.stdout!r}")
    lines = done.stderr.splitlines()
    expect(len(lines) == 1 and "no NCCL library is loaded" in lines[0],
           f"expected one clear line, got {done.stderr!r}")
    done = run([probe, "ncclGroupStart"], plugin)
    expect((done.stdout, done.stderr) == ("-1\n", ""),
           f"a program that looks for NCCL must not find any: {done}")


def local(plugin, probe, caller, folder):
    command = [probe, "libnccl.so.2", caller, "call_group_end", "has_send", "has_resume"]
    done = run(command, plugin, LD_LIBRARY_PATH=folder)
    expect(done.stdout == "5\n1\n0\n",
           f"expected NCCL's ncclInvalidUsage, ncclSend and no ncclCommResume, got {done}")
    expect(run(command, LD_LIBRARY_PATH=folder).returncode != 0,
           "the library finds NCCL without the plugin: this proves nothing")
    done = run([probe, "libnccl.so.2", "ncclGroupEnd", "ncclCommResume"], plugin,
               LD_LIBRARY_PATH=folder)
    expect(done.stdout == "5\n-1\n", f"looked up by name: {done}")


def errors(plugin, program, *libraries):
    compared = 0
    for name, folder in (item.split("=", 1) for item in libraries):
        if not os.path.exists(os.path.join(folder, "libnccl.so.2")):
            print(f"no {name} NCCL in {folder}")
            continue
        plain = run([program], LD_LIBRARY_PATH=folder)
        preloaded = run([program], plugin, LD_LIBRARY_PATH=folder)
        expect(plain.stdout.endswith("end\n"), f"{name}: {plain.stdout}{plain.stderr}")
        expect(plain.stdout == preloaded.stdout,
               f"{name}: plain\n{plain.stdout}\npreloaded\n{preloaded.stdout}{preloaded.stderr}")
        expect(plain.returncode == preloaded.returncode, f"{name}: exit status changed")
        print(f"{name} NCCL:\n{plain.stdout}")
        compared += 1
    if compared == 0:
        sys.exit(SKIPPED)


if __name__ == "__main__":
    {f.__name__: f for f in (exports, dependencies, inert, absent, local, errors)}[sys.argv[1]](
        *sys.argv[2:])

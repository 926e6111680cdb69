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
                                      NCCL's own answers come through unchanged; DIR holds a
                                      libnccl.so.2, a missing one is skipped
  plugin.py linked_statically PLUGIN PROGRAM visible|hidden
                                      a program with NCCL inside works on, with a warning
  plugin.py race PLUGIN PROGRAM NCCL CALLER...
                                      libraries loaded by many threads at once are all served
  plugin.py surface PLUGIN PROGRAM NAME=DIR...
                                      every function is found as without the plugin, and unique ids
                                      get their mark, whatever the way in
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


def surface(plugin, program, *libraries):
    compared = 0
    for name, folder in (item.split("=", 1) for item in libraries):
        library = os.path.join(folder, "libnccl.so.2")
        if not os.path.exists(library):
            print(f"no {name} NCCL in {folder}")
            continue
        compared += 1
        search = os.pathsep.join((folder, os.path.dirname(os.path.abspath(plugin))))
        plain = run([program, library], LD_LIBRARY_PATH=search)
        print(f"{name}:\n{plain.stdout}{plain.stderr}")
        expect(plain.returncode == 0, "failed without railyard")
        # Where the library has no pnccl names, nothing can be said about the id before the mark.
        expect("pncclGetUniqueId returns 0, the id's end is marked" not in plain.stdout and
               "\nncclGetUniqueId returns 0, the id's end is zero" in plain.stdout,
               "NCCL uses the end of its unique ids: there is no room for a mark")
        version = int(re.search(r"version (\d+)", plain.stdout).group(1))
        rows = re.findall(r"function (\w+) since (\d+) (\w+)", plain.stdout)
        table = {row[0] for row in rows}
        defined = {line.split()[-1]
                   for line in output("nm", "-D", "--defined-only", library).splitlines()}
        public = {symbol for symbol in defined
                  if symbol.startswith("nccl") and symbol != "ncclResetDebugInitInternal"}
        expect(public <= table, f"functions that the table lacks: {sorted(public - table)}")
        if name == "installed":
            wrong = [row for row in rows if (int(row[1]) <= version) != (row[2] == "present")]
            expect(not wrong, f"not as the table says for version {version}: {wrong}")

        marked = plain.stdout.replace("\nncclGetUniqueId returns 0, the id's end is zero",
                                      "\nncclGetUniqueId returns 0, the id's end is marked")
        ways = {"preloaded": (plugin, {})}
        # The plugin comes with the first unique id, which here is that of the pnccl name.
        if version >= 22807 and name == "installed":
            ways["as env plugin"] = (None, {"NCCL_ENV_PLUGIN": "railyard"})
            ways["as both"] = (plugin, {"NCCL_ENV_PLUGIN": "railyard"})
        for way, (preload, variables) in ways.items():
            done = run([program, library], preload, LD_LIBRARY_PATH=search, **variables)
            expect(done.stdout == marked and done.returncode == 0,
                   f"{name}, {way}: {done.stdout}{done.stderr}")
    if compared == 0:
        sys.exit(SKIPPED)


def linked_statically(plugin, program, visibility):
    env_plugin = os.path.join(os.path.dirname(os.path.abspath(plugin)), "libnccl-env-railyard.so")
    # A program that hides its NCCL cannot be told from one without, until that loads the plugin.
    for command, preload, warned in (
            ([program], None, False), ([program], plugin, visibility == "visible"),
            ([program, env_plugin], None, True), ([program, env_plugin], plugin, True)):
        done = run(command, preload)
        expect((done.returncode, done.stdout) == (0, "22809 6 3\n"), f"{command}: {done}")
        warnings = [line for line in done.stderr.splitlines() if "linked statically" in line]
        expect(len(warnings) == (1 if warned else 0) and len(done.stderr.splitlines()) ==
               len(warnings), f"{command}, preloaded {preload}: {done.stderr}")


def race(plugin, program, library, *callers):
    done = run([program, library] + [os.path.abspath(caller) for caller in callers], plugin,
               LD_LIBRARY_PATH=os.path.dirname(library))
    expect((done.returncode, done.stdout, done.stderr) == (0, "0 failures\n", ""), str(done))


if __name__ == "__main__":
    {f.__name__: f for f in (exports, dependencies, inert, absent, local, errors, surface,
                             linked_statically, race)}[sys.argv[1]](
        *sys.argv[2:])

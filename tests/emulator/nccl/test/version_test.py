#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The versions of the emulated NCCL: what each says it is and which names it has.

  version_test.py FOLDER VERSION=CODE...     FOLDER: where lib/ and nccl-VERSION/ are

Names are compared with a list written here by hand, a few for each version; then what the default
one calls by its public names, and what the newest answers without a GPU.
"""

import ctypes
import os
import subprocess
import sys

# name: first version that has it
FIRST = {
    "ncclSend": 20703, "ncclGetLastError": 21304, "ncclCommInitRankConfig": 21403,
    "ncclCommFinalize": 21403, "pncclSend": 21600, "ncclCommSplit": 21801,
    "ncclCommRegister": 21901, "ncclGroupSimulateEnd": 22203, "ncclCommInitRankScalable": 22304,
    "ncclCommShrink": 22703, "ncclAlltoAll": 22803, "ncclGather": 22803, "ncclCommRevoke": 22807,
    "ncclDevCommCreate": 22803, "ncclCommGrow": 22902, "ncclCommSuspend": 22907,
    "ncclParamGet": 23004,
}


# What the library calls by its public name, so that a layer before it sees the calls.
CALLS_ITSELF = {
    "ncclBroadcast", "ncclGetUniqueId", "ncclGetVersion", "ncclCommGetAsyncError",
    "ncclCommRegister", "ncclCommDeregister", "ncclResetDebugInitInternal",
}


def names_called_by_itself(path):
    lines = subprocess.run(["readelf", "-rW", path], check=True, capture_output=True, text=True)
    return {line.split()[4] for line in lines.stdout.splitlines()
            if "JUMP_SLO" in line and " nccl" in line}


def answers_of_the_newest(library):
    """What is told without a GPU by functions that no header here declares; those that are wrong."""
    handle, text, length = ctypes.c_void_p(), ctypes.c_char_p(b"x"), ctypes.c_int(7)
    library.ncclGetErrorString.restype = ctypes.c_char_p
    checks = {
        "ncclParamBind": library.ncclParamBind(ctypes.byref(handle), b"NCCL_DEBUG") == 4,
        "ncclParamGetStr": library.ncclParamGetStr(None, ctypes.byref(text)) == 4,
        "ncclParamGetParameter": library.ncclParamGetParameter(
            b"NCCL_DEBUG", ctypes.byref(text), ctypes.byref(length)) == 4 and length.value == 0,
        "ncclCommSuspend": library.ncclCommSuspend(None, 1) == 4,
        "ncclCommQueryProperties": library.ncclCommQueryProperties(None, None) == 4,
        "ncclSignal": library.ncclSignal(0, 0, 0, 0, None, None) == 4,
        "ncclDevCommCreate": library.ncclDevCommCreate(None, None, None) == 5,
        "ncclLLA2ACalcSlots": library.ncclLLA2ACalcSlots(3, 9) == 6,
        "ncclTimeout": library.ncclGetErrorString(8) == b"timeout",
    }
    return [name for name, right in checks.items() if not right]


def main():
    ctypes.CDLL(os.path.join(sys.argv[1], "lib", "libcuda.so.1"), ctypes.RTLD_GLOBAL)
    failed = 0
    for argument in sys.argv[2:]:
        version, code = argument.split("=")
        folder = "lib" if version == "2.28" else "nccl-" + version
        library = ctypes.CDLL(os.path.join(sys.argv[1], folder, "libnccl.so.2"))
        said = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(said))
        wrong = [name for name, first in FIRST.items()
                 if hasattr(library, name) != (first <= int(code))]
        if version == "2.28":
            wrong += CALLS_ITSELF - names_called_by_itself(library._name)
        if version == "2.30":
            wrong += answers_of_the_newest(library)
        if said.value != int(code) or wrong:
            failed += 1
            print(f"{version}: says {said.value}, should be {code}; wrong: {wrong}")
    print(f"{len(sys.argv) - 2 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

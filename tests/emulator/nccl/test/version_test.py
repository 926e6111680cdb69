#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The versions of the emulated NCCL: what each says it is and which names it has.

  version_test.py FOLDER VERSION=CODE...     FOLDER: where lib/ and nccl-VERSION/ are

Names are compared with a list written here by hand, a few for each version.
"""

import ctypes
import os
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
        if said.value != int(code) or wrong:
            failed += 1
            print(f"{version}: says {said.value}, should be {code}; names wrongly there or not: {wrong}")
    print(f"{len(sys.argv) - 2 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Checks of a program from outside, each a function that is given a bench, each one test.

    class Bench:
        def __init__(self, args, folder): ...    # made anew for each check, with an empty folder

    @check
    def says_its_version(bench): ...

    sys.exit(run(args, Bench))                   # the last line is "N passed, N failed"
"""

import sys
import tempfile
import traceback

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(item) for item in what))


def run(args, bench):
    """Runs all checks in order. Returns the exit status."""
    failed = 0
    for function in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(bench(args, folder))
                print("ok     ", function.__name__)
            except Exception:  # pylint: disable=broad-except  # one that breaks is a failed one
                failed += 1
                print("FAILED ", function.__name__)
                traceback.print_exc(file=sys.stdout)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0

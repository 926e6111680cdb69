#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Formatting and lint of everything that git tracks; for people and for CI.
#
#   tests/static/lint.sh [--fix] [--tidy]    --fix: format in place; --tidy: clang-tidy as well
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
fix=no tidy=no failed=0
for argument in "$@"; do
  case $argument in
    --fix) fix=yes ;;
    --tidy) tidy=yes ;;
    *) echo "usage: tests/static/lint.sh [--fix] [--tidy]" >&2 && exit 2 ;;
  esac
done

# Runs the command in "$@" and remembers that it failed.
check() {
  echo "lint: $1"
  "${@:2}" || failed=1
}

mapfile -t sources < <(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')
mapfile -t python < <(git ls-files '*.py')
mapfile -t shell < <(git grep -lE '^#!.*[/ ](ba)?sh$' -- . ':!*.md')

if [ $fix = yes ]; then
  clang-format-14 -i "${sources[@]}"
else
  check "clang-format" clang-format-14 --dry-run -Werror --ferror-limit=1 "${sources[@]}"
fi
check "python" python3 - "${python[@]}" <<'PY'
import sys
for path in sys.argv[1:]:
    compile(open(path, encoding="utf-8").read(), path, "exec")
PY
check "shellcheck" shellcheck -x -e SC2187 "${shell[@]}"
check "whitespace" git diff --check "$(git hash-object -t tree /dev/null)" HEAD -- .

if [ $tidy = yes ]; then
  build_dir=${BUILD_DIR:-build}
  [ -e "$build_dir/compile_commands.json" ] || meson setup "$build_dir" >/dev/null
  mapfile -t tidied < <(git ls-files 'plugin/*.cc')
  check "clang-tidy" xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p "$build_dir" \
    < <(printf '%s\n' "${tidied[@]}")
fi
[ $failed = 0 ] && echo "lint: clean"
exit $failed

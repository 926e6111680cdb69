# SPDX-License-Identifier: Apache-2.0
#
# For build-deb.sh and build-rpm.sh, which source this: where they are, and a copy of the sources to
# build from, so that the tree itself stays as it is.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$(basename "$0" .sh)
version=$(sed -n "s/^  version : '\(.*\)',/\1/p" "$root/meson.build")
# Of the last commit, so that the same sources give the same package.
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH

fail() {
  echo "$self: $*" >&2
  exit 1
}

# What stands before the first line of code of the calling script, without its marks.
usage() { sed -n '4,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# Reads the arguments into `out`, an absolute folder that exists then.
parse_arguments() {
  [ $# -le 1 ] || { usage >&2 && exit 2; }
  case ${1-} in
    --help | -h) usage && exit 0 ;;
    -*) echo "$self: unknown option $1" >&2 && usage >&2 && exit 2 ;;
  esac
  [ -n "$version" ] || fail "meson.build names no version"
  mkdir -p "${1:-$root/build/packages}" || fail "cannot make the folder ${1-}"
  out=$(cd "${1:-$root/build/packages}" && pwd)
}

# copy_source DIR: the files that git knows of, as they are now, and the fetched CUDA headers.
copy_source() {
  rm -rf "$1"
  mkdir -p "$1"
  (cd "$root" && { git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
    find . -path ./build\* -prune -o -path ./.deps -prune -o -path ./.git -prune -o -type f -print0; } |
    xargs -0 ls -d 2>/dev/null | tar -c -T - ) | tar -x -C "$1" || fail "cannot copy the sources"
}

# Packages are built by way of ccache, which is told not to mind where they lie.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export PATH=/usr/lib/ccache:$PATH CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=1
}

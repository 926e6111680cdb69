#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds railyard's packages, checks them, and uses the Debian package in a fresh root: installs it,
# runs the MoE example from it on the emulated cluster, and removes it without a trace. A line for
# each check; the last one is "N passed, N failed".
#
# usage: tests/packages/run.sh     BUILD_DIR (default: build) holds the build with the emulator
#
# The fresh root is made once and kept in PACKAGES_CACHE (default /var/cache/railyard-packages).
# Functions are run by check().
# shellcheck disable=SC2317
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
case ${1-} in
  --help) sed -n '4,10s/^# \{0,1\}//p' "$0" && exit 0 ;;
  ?*) echo "tests/packages/run.sh: unknown argument $1" >&2 && exit 2 ;;
esac
build=$(realpath -m "${BUILD_DIR:-build}")
cache=${PACKAGES_CACHE:-/var/cache/railyard-packages}
suite=bookworm

if [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null; then
  echo "packages: not root, or without leave to mount; a fresh root cannot be made"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/packages
passed=0 failed=0

# check NAME COMMAND…: one result; its output is shown if it fails.
check() {
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name"
    tail -n 40 "$work/log"
    return 1
  fi
}

finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}

# ---- the packages themselves

tree_state() { git status --porcelain 2>/dev/null; }

build_deb() {
  local before
  before=$(tree_state)
  packaging/build-deb.sh "$out" && [ "$(tree_state)" = "$before" ]
}
build_rpm() {
  local before
  before=$(tree_state)
  packaging/build-rpm.sh "$out" && [ "$(tree_state)" = "$before" ]
}

files_of_deb() { dpkg-deb -c "$deb" | awk '!/\/$/ {print $6}' | sed 's|^\.||'; }
# What both packages must hold, wherever each keeps libraries and documentation.
common_files() {
  sed -E 's,^/usr/lib(64|/[a-z0-9_]+-linux-gnu)/,/LIBDIR/,; s,\.gz$,,' |
    grep -E '^/LIBDIR/lib|/bin/|/libexec/|/man/|/doc/railyard/.*\.md' | sort
}
same_files() {
  diff <(files_of_deb | common_files) <(rpm -qlp "$rpm" | grep -vE '/(libexec|doc)/railyard$' | common_files) &&
    files_of_deb | common_files | grep -q '^/LIBDIR/librailyard.so$'
}

# Debug symbols are in the other package, under the build id of the file.
symbols_apart() {
  mkdir -p "$work/deb" "$work/dbgsym"
  dpkg-deb -x "$deb" "$work/deb" && dpkg-deb -x "$out"/railyard-dbgsym_*.deb "$work/dbgsym" || return 1
  local file id
  for file in "$work"/deb/usr/lib/*/librailyard.so "$work"/deb/usr/libexec/railyard/*; do
    ! readelf -SW "$file" | grep -q '\.debug_info' || { echo "$file has debug symbols" && return 1; }
    id=$(readelf -n "$file" | sed -n 's/ *Build ID: //p')
    [ -e "$work/dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" ] ||
      { echo "no symbols of $file" && return 1; }
  done
}

no_scripts() { # nothing of ours runs at installation; the loader's cache is all that is renewed
  dpkg-deb --ctrl-tarfile "$deb" | tar -t | sort >"$work/control"
  printf './\n./control\n./md5sums\n./triggers\n' | diff - "$work/control" &&
    [ -z "$(rpm -qp --scripts "$rpm" 2>/dev/null)" ]
}

# ---- the fresh root

fresh_root() {
  local archive
  archive=$cache/$suite-$(dpkg --print-architecture).tar
  mkdir -p "$cache" "$fresh"
  if [ ! -e "$archive" ]; then
    debootstrap --variant=minbase "$suite" "$fresh" || return 1
    rm -f "$fresh"/var/cache/apt/archives/*.deb
    tar -C "$fresh" -cf "$archive.new" . && mv "$archive.new" "$archive"
  else
    tar -C "$fresh" -xf "$archive"
  fi
}

# inside COMMAND…: in the fresh root, in a mount namespace that ends with the command.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child sh -c '
    mount --make-rprivate / && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
      exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C "$@"
  ' "$fresh" "$@"
}

# Everything in the root but the package manager's own notes.
snapshot() {
  (cd "$fresh" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./sys -o -path ./opt \
    -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache/ldconfig \) -prune -o \
    \( -type f -printf '%m %p ' -exec sha256sum {} \; \) -o -printf '%y %m %p %l\n') | sort
}

install_package() {
  cp "$deb" "$fresh/opt/railyard.deb" && inside dpkg -i /opt/railyard.deb
}

# The loader finds the names that users and NCCL give; loading one says nothing.
loads_by_name() {
  local name said
  for name in librailyard.so libnccl-tuner-railyard.so libnccl-env-railyard.so; do
    # shellcheck disable=SC2016
    said=$(inside perl -MDynaLoader -e \
      'print DynaLoader::dl_load_file($ARGV[0]) ? "" : DynaLoader::dl_error()' "$name" 2>&1)
    [ -z "$said" ] || { echo "$name: $said" && return 1; }
  done
  said=$(inside env LD_PRELOAD=librailyard.so ls / 2>&1 >/dev/null)
  [ -z "$said" ] || { echo "LD_PRELOAD: $said" && return 1; }
}

command_runs() {
  inside railyard --version | grep -qF "$(sed -n "s/^  version : '\(.*\)',/\1/p" meson.build)"
}

# The emulated cluster is no part of the package; it is brought along, in /opt.
bring_emulator() {
  mkdir -p "$fresh/opt/emulator/lib" "$fresh/opt/emulator/launch" "$fresh/opt/run" &&
    cp -L "$build"/tests/emulator/lib/lib*.so.* "$fresh/opt/emulator/lib/" &&
    cp "$build/tests/emulator/launch/emulate" "$fresh/opt/emulator/launch/" &&
    cat plugin/README.md tests/README.md README.md >"$fresh/opt/run/text"
}
train() { # train NAME [options of the launcher]
  local name=$1
  shift
  inside /opt/emulator/launch/emulate --nodes 2 --gpus 2 --timeout 300 \
    --env EMULATOR_NCCL_STATS="/opt/run/$name.nccl" "$@" -- \
    /usr/libexec/railyard/moe_train --data /opt/run/text --steps 5 --json "/opt/run/$name.json"
}
trains_alike() {
  bring_emulator && train plain && train railyard --env LD_PRELOAD=librailyard.so \
    --env RAILYARD_TRANSPORT=tcp --env RAILYARD_STATS=/opt/run/railyard.stats &&
    python3 examples/moe/compare.py "$fresh/opt/run"
}

remove_package() { inside dpkg --purge railyard; }
no_trace() { diff "$work/before" <(snapshot); }

packaging/build-deps.sh debhelper debootstrap dpkg-dev fakeroot lintian rpm rpmlint debugedit elfutils ||
  { echo "0 passed, 1 failed" && exit 1; }
[ -x "$build/tests/emulator/launch/emulate" ] || { meson setup "$build" >/dev/null 2>&1; ninja -C "$build" \
  tests/emulator/launch/emulate >/dev/null; } || { echo "0 passed, 1 failed" && exit 1; }

check "build the .deb" build_deb || finish
check "build the .rpm" build_rpm || finish
deb=$(ls "$out"/railyard_*.deb) rpm=$(ls "$out"/railyard-[0-9]*.rpm)
check "lintian" lintian --allow-root --fail-on error,warning "$out"/railyard_*.changes
check "rpmlint" rpmlint --config packaging/rpmlint.toml "$out"/*.rpm
check "debug symbols apart" symbols_apart
check "no scripts" no_scripts
check "both packages hold the same" same_files
check "exports of the packaged library" python3 tests/static/plugin.py exports \
  "$work"/deb/usr/lib/*/librailyard.so plugin/railyard.map
check "what the packaged library needs" python3 tests/static/plugin.py dependencies \
  "$work"/deb/usr/lib/*/librailyard.so

fresh=$work/root
check "a fresh root" fresh_root || finish
snapshot >"$work/before"
check "install" install_package || finish
check "installed names load" loads_by_name
check "installed command" command_runs
check "MoE example from the package" trains_alike
check "remove" remove_package
check "no trace is left" no_trace
finish

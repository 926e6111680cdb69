#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building and testing need, and only what is missing: Debian packages through
# apt-get, and, where no CUDA toolkit is found, its headers, its compiler and NCCL from their PyPI
# wheels into .deps/. With nothing missing it asks no registry and prints nothing.
#
#   packaging/build-deps.sh [--lint] [PACKAGE…]     PACKAGE: further Debian packages
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
deps=$root/.deps

# The headers follow the CUDA version that the kernel is written for; the NCCL version is the one
# whose headers the emulator implements.
wheels=(
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-nvcc==13.0.88
  nvidia-nvvm==13.0.88 nvidia-nccl-cu13==2.28.9
)
packages=(
  g++ meson ninja-build ccache pkg-config python3 libgtest-dev libgmock-dev libcli11-dev
  libeigen3-dev libfmt-dev nlohmann-json3-dev libibverbs-dev iproute2
)

die() {
  echo "build-deps: $*" >&2
  exit 1
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "not root; run: sudo apt-get install ${missing[*]}"
  echo "build-deps: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  { apt-get -q update &&
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}"
  } >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "apt-get could not install: ${missing[*]}"
  }
  rm -f "$log"
}

# Unpacks the wheels so that .deps looks like a toolkit: bin/nvcc, include/, lib/, nvvm/.
fetch_toolkit() {
  install_packages python3-pip
  echo "build-deps: no CUDA toolkit with NCCL here; fetching their wheels into .deps" >&2
  local stage=$deps.new
  rm -rf "$stage"
  mkdir -p "$stage/wheels" "$stage/unpacked"
  python3 -m pip download -q --disable-pip-version-check --no-deps -d "$stage/wheels" \
    "${wheels[@]}" >&2 || die "pip could not download: ${wheels[*]}"
  local wheel
  for wheel in "$stage"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$stage/unpacked"
    rm "$wheel"
  done
  cp -al "$stage/unpacked/nvidia/nccl/." "$stage/unpacked/nvidia/cu13/"
  chmod +x "$stage"/unpacked/nvidia/cu13/bin/* "$stage"/unpacked/nvidia/cu13/nvvm/bin/* 2>/dev/null || true
  rm -rf "$deps"
  mv "$stage/unpacked/nvidia/cu13" "$deps"
  rm -rf "$stage"
  "$root/packaging/find-headers.sh" '' >/dev/null
}

command -v dpkg-query >/dev/null ||
  die "this is not Debian; install by hand what these packages hold: ${packages[*]}"
for argument in "$@"; do
  case $argument in
    --lint) packages+=(clang-14 clang-format-14 clang-tidy-14 shellcheck) ;;
    -*) die "unknown option $argument; usage: packaging/build-deps.sh [--lint] [PACKAGE…]" ;;
    *) packages+=("$argument") ;;
  esac
done
install_packages "${packages[@]}"
"$root/packaging/find-headers.sh" '' >/dev/null 2>&1 || fetch_toolkit

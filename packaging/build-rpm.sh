#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds railyard's RPM packages from this tree. On Debian it installs what that needs first.
#
#   packaging/build-rpm.sh [OUT]     OUT: where the .rpm files go (build/packages)
set -euo pipefail
# shellcheck source=packaging/package-source.sh
. "$(dirname "$0")/package-source.sh"
parse_arguments "$@"

options=()
if command -v dpkg-query >/dev/null; then
  "$root/packaging/build-deps.sh" rpm debugedit elfutils dpkg-dev
  # Build requirements are Debian packages here, which rpm knows nothing of. Its settings lack the
  # usual flags and separate debug symbols, and libraries go where systems with RPM look.
  export DEB_BUILD_MAINT_OPTIONS="hardening=+all reproducible=-fixfilepath"
  CPPFLAGS=$(dpkg-buildflags --get CPPFLAGS) LDFLAGS=$(dpkg-buildflags --get LDFLAGS)
  export CPPFLAGS LDFLAGS
  options+=(--nodeps --define "_libdir /usr/lib64" --define "separate_symbols 1"
    --define "optflags $(dpkg-buildflags --get CXXFLAGS)")
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
source=$stage/railyard-$version
copy_source "$source"
[ ! -e "$root/.deps" ] || ln -s "$root/.deps" "$source/.deps"
mkdir -p "$stage"/{SOURCES,SPECS}
tar -C "$stage" -czf "$stage/SOURCES/railyard-$version.tar.gz" "railyard-$version"

use_ccache "$stage/BUILD"
rpmbuild -bb --define "_topdir $stage" --define "railyard_version $version" \
  --define "railyard_date $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" "${options[@]}" \
  "$root/packaging/railyard.spec" >"$stage/log" 2>&1 ||
  { tail -n 60 "$stage/log" >&2; fail "rpmbuild failed; above are its last lines"; }
find "$stage/RPMS" -name '*.rpm' -exec cp {} "$out/" \; -printf "$out/%f\n"

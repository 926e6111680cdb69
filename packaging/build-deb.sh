#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds railyard's Debian packages from this tree, with what that needs installed first.
#
#   packaging/build-deb.sh [OUT]     OUT: where the .deb files go (build/packages)
set -euo pipefail
# shellcheck source=packaging/package-source.sh
. "$(dirname "$0")/package-source.sh"
parse_arguments "$@"

"$root/packaging/build-deps.sh" debhelper dpkg-dev fakeroot
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
source=$stage/railyard-$version
copy_source "$source"
cp -r "$root/packaging/debian" "$source/debian"
# Part of no package, but where the build finds what build-deps.sh fetched.
[ ! -e "$root/.deps" ] || ln -s "$root/.deps" "$source/.deps"
cat >"$source/debian/changelog" <<TEXT
railyard ($version) unstable; urgency=medium

  * Built from the sources of this version; git log has the changes.

 -- $(sed -n 's/^Maintainer: //p' "$source/debian/control")  $(date -Ru -d "@$SOURCE_DATE_EPOCH")
TEXT

use_ccache "$source"
# Tests have a build of their own. Nothing here needs the network any more.
(cd "$source" && DEB_BUILD_OPTIONS="nocheck parallel=$(nproc) ${DEB_BUILD_OPTIONS-}" \
  dpkg-buildpackage -b -us -uc -rfakeroot) >"$stage/log" 2>&1 ||
  { tail -n 60 "$stage/log" >&2; fail "dpkg-buildpackage failed; above are its last lines"; }
cp "$stage"/*.deb "$stage"/*.changes "$stage"/*.buildinfo "$out/"
(cd "$stage" && ls -- *.deb) | sed "s|^|$out/|"

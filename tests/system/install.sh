#!/bin/sh
# The system programs that tests/system needs, from Debian's packages. Does nothing where they are all there.
set -eu

missing=
command -v chromium > /dev/null || missing="chromium fonts-dejavu-core"
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    command -v sudo > /dev/null || { echo "make test-system: run as root, or install first: $missing" >&2; exit 1; }
fi

echo "installing $missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086 # several packages
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing > /dev/null

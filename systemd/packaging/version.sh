#!/bin/sh
# Prints the version of the packages for a "git describe" of a tag, by default that of the work tree:
# v1.2.3 is 1.2.3, v1.2.3-rc.1 is 1.2.3~rc.1, and five commits later 1.2.3+5.gabcdef0. Without a tag it
# is 0.0.0~git and the date of the commit. dpkg and rpm order all of them.
set -e
describe=${1-$(git describe --tags --match 'v[0-9]*' 2>/dev/null)} ||
	describe=v0.0.0-git$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd)
echo "$describe" | sed -E 's/^v//; s/-([0-9]+)-(g[0-9a-f]+)$/+\1.\2/; s/-/~/'

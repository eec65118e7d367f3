#!/bin/sh
# Arguments: dpkg "install" or "upgrade"; rpm the number of versions that there will be.
set -e
# Of a removed package dpkg still knows the version: postinstall cannot tell this from an upgrade.
if [ "$1" = install ]; then
	touch /run/ashore.install
fi

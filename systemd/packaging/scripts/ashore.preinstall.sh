#!/bin/sh
# Arguments: dpkg "install" or "upgrade"; rpm the number of versions that there will be.
set -e
# dpkg remembers a removed package's version, so postinstall cannot tell a reinstallation from an upgrade.
if [ "$1" = install ]; then
	touch /run/ashore.install
fi

#!/bin/sh
# Arguments: dpkg "install" or "upgrade"; rpm the number of versions afterwards.
set -e
# dpkg remembers a removed package's version, so postinstall cannot distinguish a reinstallation from an upgrade.
if [ "$1" = install ]; then
	touch /run/ashore.install
fi

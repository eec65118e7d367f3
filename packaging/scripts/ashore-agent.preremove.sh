#!/bin/sh
# Arguments: dpkg "remove" or "upgrade"; rpm the number of versions that remain.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	# The rules first: without Envoy they would cut the machine off.
	ashore-agent intercept remove
	systemctl stop ashore-intercept.service
	systemctl stop ashore-agent.service 'ashore-agent@*.service'
	systemctl stop 'ashore-envoy@*.service'
	# What "intercept remove" leaves for connections through Envoy.
	if nft list table inet ashore >/dev/null 2>&1; then nft delete table inet ashore; fi
fi
systemctl disable ashore-intercept.service ashore-agent.service ashore-agent@.service

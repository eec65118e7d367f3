#!/bin/sh
# Arguments: dpkg "remove" or "upgrade"; rpm the number of versions that remain.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	# The rules first: without Envoy they would block all traffic.
	ashore-agent intercept remove --cut
	systemctl stop ashore-intercept.service ashore-agent.socket ashore-agent.service 'ashore-agent@*.service' 'ashore-envoy@*.service' ashore-envoys.target
	find /dev/shm -maxdepth 1 -user ashore-envoy -delete
fi
systemctl disable ashore-intercept.service ashore-agent.service ashore-agent@.service

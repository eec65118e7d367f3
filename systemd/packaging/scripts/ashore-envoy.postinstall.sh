#!/bin/sh
# Arguments: dpkg "configure" and the previous version; rpm the number of installed versions.
set -e
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
# At its start the agent replaces a running Envoy of another version by hot restart.
systemctl try-restart ashore-agent.service 'ashore-agent@*.service' ||
	echo 'ashore-agent did not start: "journalctl -u ashore-agent" says why' >&2

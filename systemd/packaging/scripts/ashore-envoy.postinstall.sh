#!/bin/sh
# Arguments: dpkg "configure" and the version before; rpm the number of versions that there are.
set -e
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
# An agent that starts has another Envoy than the one that runs take over, without a lost request.
systemctl try-restart ashore-agent.service 'ashore-agent@*.service' ||
	echo 'ashore-agent did not start: "journalctl -u ashore-agent" says why' >&2

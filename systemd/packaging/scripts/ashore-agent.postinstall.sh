#!/bin/sh
# Arguments: dpkg "configure" and the version before; rpm the number of versions that there are.
set -e
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

systemd-sysusers ashore-agent.conf
systemd-tmpfiles --create ashore-agent.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# Only what runs: "ashore-agent join" enables and starts the units. A restart of the agent leaves
# Envoy as it is.
systemctl try-restart ashore-intercept.service ||
	echo 'the rules were not installed anew: "journalctl -u ashore-intercept" says why' >&2
systemctl try-restart ashore-agent.service 'ashore-agent@*.service' ||
	echo 'ashore-agent did not start: "journalctl -u ashore-agent" says why' >&2

#!/bin/sh
# Arguments: dpkg "configure" and the previous version; rpm the number of installed versions.
set -e
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

systemd-sysusers ashore-agent.conf
systemd-tmpfiles --create ashore-agent.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# Restart only running units: "ashore-agent join" enables and starts them. A restart of the agent does
# not change Envoy.
systemctl try-restart ashore-intercept.service ||
	echo 'the rules were not installed again: "journalctl -u ashore-intercept" says why' >&2
systemctl try-restart ashore-agent.service 'ashore-agent@*.service' ||
	echo 'ashore-agent did not start: "journalctl -u ashore-agent" says why' >&2

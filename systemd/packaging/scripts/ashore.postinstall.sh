#!/bin/sh
# Arguments: dpkg "configure" and the previous version; rpm the number of installed versions.
set -e
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

systemd-sysusers ashore.conf
systemd-tmpfiles --create ashore.conf
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi

if [ "$1" = 1 ] || [ -e /run/ashore.install ]; then
	rm -f /run/ashore.install
	runuser -u ashore -- ashored init # keeps what is there from before the package was removed
	systemctl enable ashored.service
	verb=start
else
	verb=try-restart # Envoys continue without ashored, and agents reconnect
fi
if [ -d /run/systemd/system ] && ! systemctl "$verb" ashored.service; then
	echo 'ashored did not start: "journalctl -u ashored" says why' >&2
fi

#!/bin/sh
# Arguments: dpkg "remove", "purge" or others; rpm the number of versions that remain.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
[ "$1" = purge ] || exit 0
rm -rf /etc/ashore/agent.yaml /var/lib/ashore-agent /var/lib/ashore-intercept /run/ashore-agent /run/ashore-intercept
if [ -d /etc/ashore ]; then rmdir --ignore-fail-on-non-empty /etc/ashore; fi
for user in ashore-agent ashore-envoy; do
	if getent passwd "$user" >/dev/null; then userdel "$user"; fi
done
if getent group ashore-proxy >/dev/null; then groupdel ashore-proxy; fi

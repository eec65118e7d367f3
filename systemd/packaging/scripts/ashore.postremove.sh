#!/bin/sh
# Arguments: dpkg "remove", "purge" or others; rpm the number of versions that remain.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
[ "$1" = purge ] || exit 0
rm -rf /etc/ashore/config /var/lib/ashore /run/ashore
if [ -d /etc/ashore ]; then rmdir --ignore-fail-on-non-empty /etc/ashore; fi
if getent passwd ashore >/dev/null; then userdel ashore; fi
if getent group ashore >/dev/null; then groupdel ashore; fi

#!/bin/sh
# Arguments: dpkg "remove" or "upgrade"; rpm the number of versions that remain.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then systemctl stop ashored.service; fi
systemctl disable ashored.service

#!/bin/sh
# Installs what tests with networks and machines of their own need, and makes the Debian tree that the machines of
# internal/e2e/machines start from: machine.sh FOLDER. Needs root, and once the network.
set -eu
tree=$1

# One at a time: two runs would write into the same tree.
mkdir -p "$(dirname "$tree")"
exec 9>"$tree.lock"
flock 9

for program in nft ip debootstrap systemd-nspawn rpm; do
	command -v "$program" >/dev/null && continue
	{ apt-get update -q && apt-get install -q -y --no-install-recommends nftables iproute2 debootstrap systemd-container rpm; } ||
		{ echo 'install nftables, iproute2, debootstrap, systemd-container and rpm, then try again' >&2; exit 1; }
	break
done

packages=systemd,systemd-sysv,libpam-systemd,dbus,iproute2,nftables,ca-certificates,curl,procps,polkitd,openssh-server,nginx-light,dnsmasq-base,ufw,firewalld,sudo

# A tree of the same packages is there already.
if [ "$(cat "$tree/.packages" 2>/dev/null)" = "$packages" ]; then
	exit
fi
echo 'making a Debian tree for test machines (once; about a minute)'
umount "$tree.new/proc" "$tree.new/sys" 2>/dev/null || true # an interrupted debootstrap leaves them mounted
rm -rf "$tree" "$tree.new"
debootstrap --variant=minbase --include="$packages" bookworm "$tree.new" >"$tree.log" 2>&1 || { tail "$tree.log" >&2; exit 1; }
chroot "$tree.new" systemctl --quiet enable systemd-networkd
chroot "$tree.new" systemctl --quiet disable nginx ufw firewalld dnsmasq 2>/dev/null || true
rm -rf "$tree.new/var/cache/apt/archives" "$tree.log"
echo "$packages" >"$tree.new/.packages"
mv "$tree.new" "$tree"

#!/bin/sh
# Puts Prometheus and promtool of Debian's package into a folder, for tests: prometheus.sh FOLDER. Installs nothing.
# Needs a Debian machine, whose mirror it uses, and once the network.
set -eu
folder=$1
release=bookworm

# One at a time: two runs would write into the same folder.
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9

[ "$(cat "$folder/.release" 2>/dev/null)" != "$release" ] || exit 0
echo "fetching Prometheus of Debian $release (once; some 15 seconds)"
for program in apt-get dpkg-deb; do
	command -v "$program" >/dev/null || { echo "$program is missing: set PROMETHEUS and PROMTOOL to programs of your own" >&2; exit 1; }
done
rm -rf "$folder" "$folder.new"
mkdir -p "$folder.new/lists/partial" "$folder.new/cache/archives/partial"
cd "$folder.new"
# apt verifies Debian's signature. Its state is in this folder, so that the release of this machine does not matter.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >sources
apt() {
	apt-get -q -o Dir::Etc::SourceList="$PWD/sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$PWD/lists" \
		-o Dir::Cache="$PWD/cache" -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none "$@"
}
{ apt update && apt download prometheus && dpkg-deb -x prometheus_*.deb tree; } >log 2>&1 || { tail log >&2; exit 1; }
mv tree/usr/bin/prometheus tree/usr/bin/promtool .
rm -r tree lists cache sources log prometheus_*.deb
echo "$release" >.release
cd - >/dev/null
mv "$folder.new" "$folder"

#!/bin/sh
# Puts what the images of containers need of Debian into a folder: debian.sh FOLDER ARCH, where ARCH is amd64 or arm64.
# That is nftables with its libraries, among them Envoy's (glibc), and CA certificates. A folder that exists is kept.
# Needs apt-get, whose sources have the architecture, and once the network. Nothing is installed.
set -eu
umask 022
folder=$1 arch=$2

# One at a time: two runs would write into the same folder.
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9

[ ! -e "$folder" ] || exit 0
command -v apt-get dpkg-deb >/dev/null ||
	{ echo "apt-get is missing: make the images on Debian or Ubuntu, or put such a tree into $folder" >&2; exit 1; }
echo "fetching libraries of Debian for $arch (once; about 4 MB, and lists of packages)"
new=$(realpath "$folder.new") apt=$(realpath "$folder.new")/apt
rm -rf "$new"
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/parts" "$new/etc/ssl/certs"
: >"$apt/status" # as on a machine without any package
for sources in debian ubuntu; do
	cp "/etc/apt/sources.list.d/$sources.sources" "$apt/parts/" 2>/dev/null || true
done
get() {
	apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o Dir::Etc::SourceParts="$apt/parts" -o Dir::State="$apt" \
		-o Dir::State::status="$apt/status" -o Dir::Cache="$apt" "$@"
}
if ! get update || ! get install -y --no-install-recommends --download-only nftables ||
	! (cd "$apt/archives" && get download ca-certificates); then
	echo "check the network and the sources of apt-get: they need packages for $arch" >&2
	exit 1
fi
for package in "$apt"/archives/*.deb; do
	dpkg-deb -x "$package" "$new"
done
rm -r "$apt"
find "$new/usr/share/doc" -type f ! -name copyright -delete
find "$new" -depth \( -path '*/usr/share/man' -o -path '*/usr/share/locale' -o -path '*/usr/share/lintian' -o -name gconv \) \
	-exec rm -r {} +
cat "$new"/usr/share/ca-certificates/mozilla/*.crt >"$new/etc/ssl/certs/ca-certificates.crt"
mv "$new" "$folder"

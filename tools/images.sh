#!/bin/sh
# Writes the images of ashored and of ashore-agent with Envoy: images.sh DIST VERSION ARCH ENVOY. The programs are in
# DIST/build/ARCH, and ENVOY is a folder that envoy.sh made.
set -eu
umask 022
dist=$1 version=$2 arch=$3 envoy=$4
debian=.tools/debian-$arch
tools/debian.sh "$debian" "$arch"

layers=$(mktemp -d "$dist/build/image.XXXXXX")
trap 'rm -rf "$layers"' EXIT

# base FOLDER USER ID: what each image has.
base() {
	mkdir -p "$1/etc/ssl/certs" "$1/usr/local/bin" "$1/usr/share/doc/ca-certificates"
	printf 'root:x:0:0::/:/bin/false\n%s:x:%s:%s::/:/bin/false\n' "$2" "$3" "$3" >"$1/etc/passwd"
	printf 'root:x:0:\n%s:x:%s:\n' "$2" "$3" >"$1/etc/group"
	cp "$debian/etc/ssl/certs/ca-certificates.crt" "$1/etc/ssl/certs"
	cp "$debian/usr/share/doc/ca-certificates/copyright" "$1/usr/share/doc/ca-certificates"
}

# program FOLDER NAME: one of ours with its licence.
program() {
	mkdir -p "$1/usr/local/bin" "$1/usr/share/doc/ashore"
	cp "$dist/build/$arch/$2" "$1/usr/local/bin"
	cp LICENSE "$1/usr/share/doc/ashore"
}

base "$layers/ashored" ashore 65532
program "$layers/ashored" ashored
program "$layers/ashored" ashorectl
tools/image.sh "$dist/ashored-$version-$arch.oci.tar" ashored "$version" "$arch" 65532:65532 /usr/local/bin/ashored \
	"$layers/ashored"

# Envoy changes seldom, so it is in a layer below the agent's.
base "$layers/envoy" ashore-proxy 1337
cp -a "$debian/." "$layers/envoy"
cp "$envoy/envoy" "$layers/envoy/usr/local/bin"
mkdir "$layers/envoy/usr/share/doc/ashore-envoy"
cp LICENSE "$layers/envoy/usr/share/doc/ashore-envoy"
cp "$envoy/LICENSE" "$layers/envoy/usr/share/doc/ashore-envoy/LICENSE.wheel"
cp systemd/packaging/envoy-copyright "$layers/envoy/usr/share/doc/ashore-envoy/copyright"
program "$layers/ashore-agent" ashore-agent
tools/image.sh "$dist/ashore-agent-$version-$arch.oci.tar" ashore-agent "$version" "$arch" 1337:1337 \
	/usr/local/bin/ashore-agent "$layers/envoy" "$layers/ashore-agent"

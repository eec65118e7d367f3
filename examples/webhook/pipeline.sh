#!/usr/bin/env bash
# Validates a folder of configuration, as a step of a pipeline: pipeline.sh FOLDER URL ROOTS
# FOLDER is what is to be merged, URL the control plane's (https://mesh.example:15017), ROOTS a file with its root
# certificates (ashorectl ca show --pem). It prints what is wrong as compilers do, and exits with 1 when something is.
set -euo pipefail
folder=$1 url=$2 roots=$3
failed=0
while IFS= read -r -d '' file; do
  curl --silent --show-error --fail-with-body --retry 3 --max-time 30 --cacert "$roots" -H 'Accept: text/plain' -H "Ashore-File: $file" \
    --data-binary @"$file" "$url/v1/validate" || failed=1
done < <(find "$folder" \( -name '*.yaml' -o -name '*.yml' -o -name '*.json' \) -print0 | sort -z)
exit "$failed"

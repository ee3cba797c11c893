#!/usr/bin/env bash
# Put a Kubernetes control plane, etcd and KWOK for the cluster tests into a folder, each file checked
# against the digest that its publisher states.
# usage: cluster-binaries.sh FOLDER; needs curl, and gh with GH_TOKEN
set -euo pipefail

folder="$1"
kubernetes="${KUBERNETES:-v1.35.4}"
etcd="${ETCD:-v3.6.5}"
kwok="${KWOK:-v0.8.0}"

mkdir -p "$folder"
cd "$folder"

fetch() { curl --fail --silent --show-error --location --retry 3 "$@"; }

digest() { # REPOSITORY TAG FILE: the SHA-256 of a release's file
  gh api "repos/$1/releases/tags/$2" \
    --jq ".assets[] | select(.name == \"$3\") | .digest | ltrimstr(\"sha256:\")"
}

check() { # SHA256 FILE
  [ -n "$1" ] || { echo "no digest is published for $2" >&2; exit 1; }
  sha256sum --check --strict --quiet <<<"$1  $2"
}

for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  url="https://dl.k8s.io/release/$kubernetes/bin/linux/amd64/$name"
  fetch --output "$name" "$url"
  check "$(fetch "$url.sha256")" "$name"
done

archive="etcd-$etcd-linux-amd64.tar.gz"
fetch --remote-name "https://github.com/etcd-io/etcd/releases/download/$etcd/$archive"
check "$(digest etcd-io/etcd "$etcd" "$archive")" "$archive"
tar --extract --gzip --file "$archive" --strip-components 1 "${archive%.tar.gz}/etcd"
rm "$archive"

fetch --output kwok "https://github.com/kubernetes-sigs/kwok/releases/download/$kwok/kwok-linux-amd64"
check "$(digest kubernetes-sigs/kwok "$kwok" kwok-linux-amd64)" kwok

chmod +x kube-apiserver kube-controller-manager kube-scheduler kubectl etcd kwok

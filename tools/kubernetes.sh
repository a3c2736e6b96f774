#!/usr/bin/env bash
# tools/kubernetes.sh: builds etcd, kube-apiserver, kube-controller-manager, kubectl and JobSet's controller from the Go
# modules of testing/kubernetes/server, unless they exist, and prints their folder, which is outside the repository. In
# it, jobset.yaml is what installs JobSet, by `kubectl apply`. The first run on a machine compiles for half an hour on
# two busy cores, and takes 4 GB of disk, with Go's cache. It also removes what was built of earlier versions and not
# used for a month.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly modules=testing/kubernetes/server go=$PWD/tools/go.sh
wanted=$(cat $modules/go.mod $modules/go.sum tools/versions/go.txt | sha256sum | cut -c1-12)
readonly parent="${GANGWAY_CACHE:-$HOME/.cache/gangway}/kubernetes"
readonly folder=$parent/$wanted

version_of() { "$go" list -m -f '{{.Version}}' "$1"; }

build() {  # NAME PACKAGE [LINKER FLAG...]
  echo "kubernetes: building $1" >&2
  "$go" build -p "${JOBS:-$(nproc)}" -ldflags "-s -w ${*:3}" -o "$folder/$1" "$2" >&2
}

build_all() {
  cd $modules
  local kubernetes jobset stamp=k8s.io/component-base/version
  kubernetes=$(version_of k8s.io/kubernetes)
  local minor=${kubernetes#v1.}
  local flags=("-X $stamp.gitVersion=$kubernetes" "-X $stamp.gitMajor=1" "-X $stamp.gitMinor=${minor%%.*}")
  build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "${flags[@]}"
  build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager "${flags[@]}"
  build kubectl k8s.io/kubernetes/cmd/kubectl "${flags[@]}"
  build etcd go.etcd.io/etcd/server/v3
  build jobset sigs.k8s.io/jobset
  jobset=$("$go" list -m -f '{{.Dir}}' sigs.k8s.io/jobset)
  "$folder/kubectl" kustomize "$jobset/config/default" > "$folder/jobset.yaml"
}

mkdir -p "$parent"
exec 9> "$folder.lock"
flock -w 7200 9 || { echo 'kubernetes: another process has been building them for two hours' >&2; exit 1; }
if [ ! -f "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  (build_all 9>&-)
fi
touch "$folder/complete"
find "$parent" -mindepth 2 -maxdepth 2 -name complete ! -path "$folder/*" -mtime +30 -printf '%h\0' | xargs -0 -r rm -rf
printf '%s\n' "$folder"

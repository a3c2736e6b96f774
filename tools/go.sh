#!/usr/bin/env bash
# tools/go.sh ARGUMENT...: runs the Go of tools/versions/go.txt in the current folder. Go itself, modules and what it
# compiles are kept outside the repository; the first run downloads them.
set -euo pipefail
python=$("$(dirname "${BASH_SOURCE[0]}")/venv.sh" go)
cache="${GANGWAY_CACHE:-$HOME/.cache/gangway}/go"
export GOPATH="$cache" GOCACHE="$cache/build" GOTOOLCHAIN=local GOFLAGS="-modcacherw -buildvcs=false" CGO_ENABLED=1
exec "$(dirname "$python")/go" "$@"

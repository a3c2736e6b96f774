#!/usr/bin/env bash
# tools/clang_tidy_changed.sh [--all | BASE]: clang-tidy-19 on the .cc files that differ from the commit BASE (default HEAD),
# new ones too, or on all. Needs the compile commands of the dev build. Bounded: CLANG_TIDY_TIMEOUT_S (default 1200) in
# all; what that leaves unchecked is named and is a failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
readonly database=build/dev/compile_commands.json
[ -f $database ] || { echo "clang-tidy: $database is missing; run 'make build'" >&2; exit 1; }

if [ "${1:-}" = --all ]; then
  list() { git ls-files --cached --others --exclude-standard -- 'gangway/*.cc'; }
else
  base=${1:-HEAD}
  git rev-parse -q --verify "$base^{commit}" >/dev/null || { echo "clang-tidy: no commit '$base'" >&2; exit 1; }
  list() { git diff --name-only "$base" -- 'gangway/*.cc'; git ls-files --others --exclude-standard -- 'gangway/*.cc'; }
fi
# A file that no target compiles has no command to check it with; tools/tidy reports such files.
mapfile -t files < <(list | sort -u | while read -r f; do
  [ -f "$f" ] && grep -qF "/$f\"" $database && echo "$f"; done)
[ ${#files[@]} -gt 0 ] || { echo "clang-tidy: nothing to check"; exit 0; }

limit=${CLANG_TIDY_TIMEOUT_S:-1200}
done_list=$(mktemp)
trap 'rm -f "$done_list"' EXIT
export done_list
echo "clang-tidy: ${#files[@]} files, at most $limit s"
# shellcheck disable=SC2016  # expands in the inner shell
printf '%s\0' "${files[@]}" | timeout --kill-after=5 "$limit" xargs -0 -n1 -P "${JOBS:-$(nproc)}" bash -c '
  clang-tidy-19 -quiet -p build/dev --extra-arg=-Wno-unknown-warning-option "$1" 2> >(grep -v "warnings\? generated" >&2)
  status=$?
  echo "$1" >> "$done_list"
  exit $status' clang-tidy
status=$?
if [ $status -eq 124 ] || [ $status -eq 137 ]; then
  echo "clang-tidy: stopped at $limit s; not checked:" >&2
  comm -23 <(printf '%s\n' "${files[@]}" | sort) <(sort "$done_list") >&2
fi
[ $status -eq 0 ]

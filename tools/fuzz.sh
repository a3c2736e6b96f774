#!/usr/bin/env bash
# tools/fuzz.sh [NAME...]: runs the fuzz targets (all, or those whose names contain NAME) under libFuzzer with ASan and
# UBSan, each for FUZZ_SECONDS (default 30), one after another. A target starts from its own seeds and from the corpus
# of earlier runs (build/fuzz/corpus). A finding is a failure; its input is in build/fuzz/findings, and
# `build/asan/.../X_fuzz FILE` replays it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
readonly seconds=${FUZZ_SECONDS:-30}
readonly tree=$PWD/build/fuzz
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz: FUZZ_SECONDS=$seconds is not a number of seconds" >&2; exit 2; }

tools/build.sh fuzz gangway_fuzzers || exit 1
mapfile -t targets < <(find "$tree/gangway" -name '*_fuzz' -type f -perm -u+x | sort)
if [ $# -gt 0 ]; then
  mapfile -t targets < <(printf '%s\n' "${targets[@]}" | grep -F -f <(printf '%s\n' "$@"))
fi
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no target has such a name" >&2; exit 1; }

suppressions=$PWD/tools/sanitizers
export LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1
failed=()
for target in "${targets[@]}"; do
  name=$(basename "$target")
  corpus=$tree/corpus/$name
  mkdir -p "$corpus" "$tree/findings"
  GANGWAY_FUZZ_SEEDS=$corpus "$target" || exit 1
  # malloc_limit_mb: a small input that makes a process allocate this much is a finding, too.
  if timeout --kill-after=10 $((seconds + 120)) "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
      -malloc_limit_mb=512 -max_len=4096 -print_final_stats=1 -artifact_prefix="$tree/findings/$name-" "$corpus" \
      > "$tree/$name.log" 2>&1; then
    printf '%-36s %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: */runs: /p' "$tree/$name.log")"
  else
    failed+=("$name")
    printf '%-36s FAILED: %s\n' "$name" "$tree/$name.log"
    grep -E 'ERROR|SUMMARY|runtime error|CHECK|Test unit written' "$tree/$name.log" | head -8
  fi
done
[ ${#failed[@]} -eq 0 ] || { echo "fuzz: ${#failed[@]} of ${#targets[@]} targets failed: ${failed[*]}"; exit 1; }

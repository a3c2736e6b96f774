#!/usr/bin/env bash
# tools/test.sh [STAGE...]: runs the stages of `make test`, each timed and with a limit; "all" (the default) and
# "nightly" (what `make nightly` adds) are the lists below.
# All stages run even if one fails; then the summary names the failed ones, and the exit status is 1.
# JOBS limits parallel compiles (default: all cores), TEST_JOBS parallel unit tests (default 2: most start threads of
# their own), E2E_JOBS parallel end-to-end tests that are not marked "alone" (default 3).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
readonly all_stages=(format tidy scripts unit clang_tidy e2e asan tsan)
readonly nightly_stages=(tidy_all fuzz release e2e_all mutants)
readonly test_jobs=${TEST_JOBS:-2} e2e_jobs=${E2E_JOBS:-3}
export PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}"

# An empty suite is a failure: pytest exits with 5 if it finds no test, and ctest fails by --no-tests=error.
run_ctest() { ctest --test-dir "$1" -j "$test_jobs" --output-on-failure --no-tests=error "${@:2}"; }

stage_format() { tools/format --check; }
stage_tidy() { .venv/bin/pytest -q tools && tools/tidy; }
stage_scripts() {
  local shell scripts
  mapfile -t shell < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run tools/format tools/compile_cached)
  mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- \
    'bench/*.py' 'examples/*.py' 'testing/*.py' 'tests/*.py' 'tools/*.py' tools/clang_tidy)
  shellcheck -S warning "${shell[@]}" && .venv/bin/ruff check . && .venv/bin/mypy "${scripts[@]}" && (cd python && ../.venv/bin/mypy gangway)
}
stage_unit() { tools/build.sh dev && tools/tidy --headers-only && run_ctest build/dev; }
# Needs the dev build, whose include records tell tools/clang_tidy through which source to check a header.
stage_clang_tidy() { tools/build.sh dev && tools/clang_tidy; }
# First, in parallel, the tests that tolerate delays; then, one at a time, the tests marked "alone", which measure a
# deadline or counts.
stage_e2e() {
  local failed=0
  tools/build.sh dev || return 1
  .venv/bin/pytest -q tests -m "not alone" -n "$e2e_jobs" --durations=10 || failed=1
  .venv/bin/pytest -q tests -m alone --durations=10 || failed=1
  return $failed
}
stage_asan() { tools/build.sh asan gangway_tests && run_ctest build/asan -LE '^unsanitized$'; }
stage_tsan() { tools/build.sh tsan gangway_tests_tsan && run_ctest build/tsan -L '^tsan$'; }
stage_tidy_all() { tools/build.sh dev && CLANG_TIDY_TIMEOUT_S=12600 tools/clang_tidy --all; }
stage_fuzz() { tools/fuzz.sh; }
# The simulation runs once with more seeds (of each of ten kinds of trouble), since repeated seeds prove nothing; all
# other tests run five times.
stage_release() {
  tools/build.sh release && GANGWAY_SEEDS=5600 run_ctest build/release -R '^simulation_test$' &&
    GANGWAY_SEEDS=2000 run_ctest build/release -R '^simulation_processes_test$' &&
    run_ctest build/release -E '^simulation_(processes_)?test$' --repeat until-fail:5
}
stage_mutants() { tools/build.sh dev && tools/mutants; }
stage_e2e_all() { GANGWAY_NIGHTLY=1 stage_e2e; }  # with the parts that tests otherwise skip

limit_s() {  # generous: it ends hangs, it does not measure speed
  case $1 in format | tidy | scripts) echo 600 ;; tidy_all) echo 14400 ;; release | e2e_all | mutants) echo 7200 ;; *) echo 3600 ;; esac
}

run_stages() {
  local stage started seconds status failed=0 summary=()
  for stage in "$@"; do
    printf '\n== %s\n' "$stage"
    started=$SECONDS
    # A stage is a function of this script, but `timeout` runs only programs, so the script runs itself.
    timeout --kill-after=10 "$(limit_s "$stage")" "$BASH" "$0" --stage "$stage"
    status=$?
    seconds=$((SECONDS - started))
    case $status in
      0) status=ok ;;
      124 | 137) status="FAILED: past its limit of $(limit_s "$stage") s" failed=1 ;;
      *) status=FAILED failed=1 ;;
    esac
    summary+=("$(printf '%-10s %5d s  %s' "$stage" "$seconds" "$status")")
  done
  printf '\n== summary, %d s\n' "$SECONDS"
  printf '%s\n' "${summary[@]}"
  return $failed
}

main() {
  local argument stages=()
  if [ "${1:-}" = --stage ]; then "stage_$2"; return; fi
  for argument in "${@:-all}"; do
    if [ "$argument" = all ]; then
      stages+=("${all_stages[@]}")
    elif [ "$argument" = nightly ]; then
      stages+=("${nightly_stages[@]}")
    elif declare -F "stage_$argument" >/dev/null; then
      stages+=("$argument")
    else
      echo "test: no stage '$argument'; stages: all ${all_stages[*]}; nightly ${nightly_stages[*]}" >&2
      return 2
    fi
  done
  run_stages "${stages[@]}"
}

main "$@"

#!/usr/bin/env bash
# tools/test.sh [STAGE...]: runs the stages of `make test`, each timed and with a limit; "all" (the default) and
# "nightly" (the parts of `make nightly`) are the lists below.
# All stages run even if one fails; then the summary names the failed ones, and the exit status is 1.
# JOBS limits parallel compiles (default: all cores), TEST_JOBS parallel unit tests (default 3: many wait for limits,
# and most start threads), E2E_JOBS parallel end-to-end tests that are not marked "alone" (default 3).
#
# Each stage of `make test` has a share of its budget (tools/budget.py), and prints its time beside it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
readonly all_stages=(setup build format tidy scripts docs simulation clang_tidy e2e asan tsan)
readonly nightly_stages=(unit_all sanitizers_all fuzz release tidy_all_1 tidy_all_2 e2e_all_1 e2e_all_2 e2e_all_3 mutants_1 mutants_2)
readonly e2e_jobs=${E2E_JOBS:-3} check_s=11  # seconds that a source for clang-tidy takes on two cores
export PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}"

limit_s() {  # generous: it ends hangs
  case $1 in format | tidy | scripts | docs) echo 600 ;; *_all* | fuzz | release | mutants*) echo 7200 ;; *) echo 3600 ;; esac
}

budget() { ! command -v python3 >/dev/null || python3 tools/budget.py "$@"; }  # a bare machine has no Python yet
allow() { budget allow "$1"; }  # seconds, to the share of the running stage

stage_setup() {
  [ -e "${GANGWAY_CACHE:-$HOME/.cache/gangway}/tests" ] || allow 600  # no test has passed on this machine: all is to be installed
  tools/setup.sh
}
stage_build() { tools/build.sh dev; }
stage_format() { tools/format --check; }
stage_tidy() { .venv/bin/pytest -q tools -n 2 --ignore tools/docs && tools/tidy; }
stage_scripts() {
  local shell scripts
  mapfile -t shell < <(git ls-files --cached --others --exclude-standard -- '*.sh' '*.sbatch' .ci/run tools/format tools/compile_cached)
  mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- \
    'bench/*.py' 'examples/*.py' 'testing/*.py' 'tests/*.py' 'tools/*.py')
  # mypy checks no module again that has not changed, JAX's above all: 5 s, and 35 without the cache.
  export MYPY_CACHE_DIR
  MYPY_CACHE_DIR=${GANGWAY_CACHE:-$HOME/.cache/gangway}/mypy/$(sha256sum tools/versions/requirements.txt | cut -c1-16)
  [ -e "$MYPY_CACHE_DIR" ] || allow 35
  shellcheck -S warning "${shell[@]}" && .venv/bin/ruff check . && .venv/bin/mypy "${scripts[@]}" &&
    for each in clang_tidy mutants run_tests; do .venv/bin/mypy tools/$each || return 1; done &&
    (cd python && MYPY_CACHE_DIR+=/package ../.venv/bin/mypy gangway gangway_command)
}
stage_docs() {
  command -v doxygen >/dev/null || allow 30
  compgen -G "${GANGWAY_CACHE:-$HOME/.cache/gangway}/venvs/docs-*/complete" >/dev/null || allow 30
  tools/docs/build.sh && .venv/bin/pytest -q tools/docs
}
# The simulation, and what no sanitizer can run; all other unit tests run under AddressSanitizer alone.
stage_simulation() { tools/build.sh dev gangway_tests_dev && tools/tidy --headers-only && tools/run_tests dev -L '^dev$'; }
stage_clang_tidy() {
  local log=build/clang_tidy.log status due
  tools/build.sh dev && tools/clang_tidy 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  due=$(sed -n 's/^clang-tidy: .* passed, \([0-9]*\) to check$/\1/p' "$log")
  allow $((check_s * ${due:-0}))
  return "$status"
}
# What one cluster of a run has compiled, the others load from a cache on disk, as all clusters of a user do. A run has
# a cache of its own, so that it compiles each program once.
share_compiles() {
  GANGWAY_CACHE_DIR=$(mktemp -d)
  export GANGWAY_CACHE_DIR
  trap 'rm -rf "$GANGWAY_CACHE_DIR"' EXIT
}
# First, in parallel, the tests that tolerate delays; then, one at a time, the tests marked "alone", which measure a
# deadline or counts.
run_e2e() {
  local failed=0
  [ -n "${GANGWAY_NIGHTLY:-}" ] || share_compiles
  .venv/bin/pytest -q tests -m "not alone" -n "$e2e_jobs" --durations=40 "$@" || failed=1
  .venv/bin/pytest -q tests -m alone --durations=40 "$@" || failed=1
  return $failed
}
stage_e2e() {
  [ -e "${GANGWAY_CACHE:-$HOME/.cache/gangway}/e2e" ] || allow 300  # outcomes on the reference, the Go toolchain
  tools/build.sh dev && run_e2e --skip-passed
}
stage_asan() { tools/build.sh asan gangway_tests_asan && tools/run_tests asan -LE '^dev$'; }
stage_tsan() { tools/build.sh tsan gangway_tests_tsan && tools/run_tests tsan -L '^tsan$'; }

# --- The parts of `make nightly`, each within two hours: nothing is skipped that passed before. ---

stage_unit_all() { tools/build.sh dev gangway_tests && tools/run_tests dev --all; }
# Under AddressSanitizer with the simulation and every check of UBSan, under ThreadSanitizer all that it can run.
stage_sanitizers_all() {
  tools/build.sh asan_all gangway_tests && tools/run_tests asan_all --all && tools/build.sh tsan gangway_tests && tools/run_tests tsan --all -L '^(tsan|core|program)$'
}
stage_fuzz() {
  tools/fuzz.sh && run_mutated dev && run_mutated fuzz
}
# Each night other programs. With the fuzzers' build, the handlers of ours are instrumented.
run_mutated() {
  local seed=$(($(date +%s) / 86400 * 100000))
  tools/build.sh "$1" gangway_mutated_programs && ASAN_OPTIONS=allocator_may_return_null=1 \
    "build/$1/gangway/compiler/gangway_mutated_programs" build/fuzz/findings "${FUZZ_SECONDS:-30}" "$seed"
}
# The simulation runs once with more seeds (of each of ten kinds of trouble), since repeated seeds prove nothing; all
# other tests run five times.
stage_release() {
  tools/build.sh release all gangway_tests && GANGWAY_SEEDS=5600 tools/run_tests release --all -R '^simulation_test_' &&
    GANGWAY_SEEDS=2000 tools/run_tests release --all -R '^simulation_processes_test$' &&
    tools/run_tests release --all -E '^simulation_(processes_)?test' --repeat until-fail:5
}
run_tidy_all() { tools/build.sh dev gangway_tests && CLANG_TIDY_TIMEOUT_S=6900 tools/clang_tidy --all --part "$1/2"; }
stage_tidy_all_1() { run_tidy_all 1; }
stage_tidy_all_2() { run_tidy_all 2; }
run_e2e_all() { export GANGWAY_NIGHTLY=1 && tools/build.sh dev && run_e2e --part "$1/3"; }  # with what tests otherwise leave out
stage_e2e_all_1() { run_e2e_all 1; }
stage_e2e_all_2() { run_e2e_all 2; }
stage_e2e_all_3() { run_e2e_all 3; }
run_mutants() { tools/build.sh dev gangway_tests && tools/mutants --part "$1/2"; }
stage_mutants_1() { run_mutants 1; }
stage_mutants_2() { run_mutants 2; }

run_stages() {
  local stage status time failed=0 summary=() speed began=$SECONDS
  GANGWAY_ALLOWANCE=$(mktemp)
  export GANGWAY_ALLOWANCE
  trap 'rm -f "$GANGWAY_ALLOWANCE"' EXIT
  speed=$(budget speed)
  for stage in "$@"; do
    printf '\n== %s\n' "$stage"
    : > "$GANGWAY_ALLOWANCE"
    budget begin "$GANGWAY_ALLOWANCE"
    # A stage is a function of this script, but `timeout` runs only programs, so the script runs itself.
    timeout --kill-after=10 "$(limit_s "$stage")" "$BASH" "$0" --stage "$stage"
    case $? in
      0) status=ok ;;
      124 | 137) status="FAILED: past its limit of $(limit_s "$stage") s" failed=1 ;;
      *) status=FAILED failed=1 ;;
    esac
    time=$(budget end "$GANGWAY_ALLOWANCE" "$stage" "${speed:-100}") || failed=1
    summary+=("$(printf '%-15s %-7s %s' "$stage" "$status" "$time")")
  done
  printf '\n== summary, %d s; this machine takes %d%% of the reference machine'"'"'s time\n' "$((SECONDS - began))" "${speed:-0}"
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

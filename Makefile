# The commands of this repository. `make demo` and `make test` work in a fresh clone: each first installs the pinned
# versions (tools/setup.sh, which skips what is installed) and builds.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build demo conformance wheel gpu-kit docs recording test asan tsan fuzz nightly format tidy bench clean

help:  ## this list
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

setup:  ## packages, .venv and .deps at the versions in tools/versions
	@tools/setup.sh

build: setup  ## the dev build in build/dev, linked as bin/gangway
	@tools/build.sh dev

demo: setup  ## a cluster on this machine: a JAX script trains, a pipeline runs, a worker is killed
	@tools/build.sh dev gangway gangway_pjrt
	@examples/demo.sh

test:  ## everything a change must pass: setup, build, checks, unit tests, end to end; 12 minutes on a warm machine
	@tools/test.sh

asan: setup  ## the C++ unit tests, under AddressSanitizer and UBSan
	@tools/test.sh asan

tsan: setup  ## the concurrent part of the C++ unit tests under ThreadSanitizer
	@tools/test.sh tsan

fuzz: setup  ## the fuzz targets, each for FUZZ_SECONDS (30)
	@tools/fuzz.sh

nightly: setup  ## all that make test leaves out or skips, in parts of at most two hours each
	@tools/test.sh nightly

nightly-%: setup  ## one part of it: unit_all, sanitizers_all, fuzz, release, tidy_all_1, e2e_all_1, mutants_1, ...
	@tools/test.sh $*

format: setup  ## formats C++ and Python in place
	@tools/format
	@.venv/bin/ruff check -q --fix .

tidy: build  ## the house rules, on the whole tree; clang-tidy on what differs from BASE (or the merged state)
	@tools/tidy --headers
	@tools/clang_tidy $(BASE)

docs: setup  ## the documentation as a site, build/docs/site/index.html, which can be read offline
	@tools/docs/build.sh

recording: build  ## the terminal on the first page, docs/images/session.svg, from a session that it really runs
	@.venv/bin/python tools/docs/recording.py

conformance: setup  ## gangway_conformance: the device suite as one file for another machine
	@tools/build.sh release gangway_conformance

wheel: setup  ## dist/gangway_runtime-*.whl, which pip installs on other hosts, too
	@rm -f dist/gangway_runtime-*.whl
	@.venv/bin/pip wheel -q --disable-pip-version-check --no-deps -w dist .
	@ls dist/gangway_runtime-*.whl

gpu-kit: setup  ## build/gpu-kit: what tools/gpu_check.sh needs on a machine with a GPU and no network
	@tools/gpu_kit.sh

bench: setup  ## every benchmark, beside its peers
	@tools/bench.sh

bench-%: setup  ## one benchmark: bench/%.py
	@tools/bench.sh $*

clean:  ## removes build outputs; keeps .venv and .deps
	rm -rf build bin bench/out examples/out

"""What passed before is not run again, and whatever may change an outcome makes it run: ctest tests (tools/run_tests) and
end-to-end tests (tests/conftest.py), in a small repository of their own."""

from __future__ import annotations

import ast
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CTEST = """add_test(good "{build}/good" "argument")
set_tests_properties(good PROPERTIES LABELS "some" ENVIRONMENT "A=1;OPTIONS=file={root}/x")
add_test(bad "{build}/bad")
set_tests_properties(bad PROPERTIES LABELS "some")
add_test(other "{build}/other")
"""
TESTS = """import pathlib
import test_of_others

def test_one(): note("one")

def test_two(): note("two"); assert not pathlib.Path(__file__).with_name("fail").exists()

def note(name):
    with pathlib.Path(__file__).with_name("ran").open("a") as file: print(name, file=file)
"""
HARNESS = """
import os, pathlib
ROOT = pathlib.Path(__file__).parents[1]
PATIENCE = 5 if "PYTEST_XDIST_WORKER" in os.environ else 1
NIGHTLY, PYTHON = False, "python3"
class Cluster: ...
def start_fork_server(): ...
"""


class Repository:
    """A copy of the tools under test, with a build of three programs, and two end-to-end tests."""

    def __init__(self, folder: pathlib.Path, cache: pathlib.Path) -> None:
        self.root, self.cache = folder, cache
        for name in (
            "tools/run_tests",
            "tools/stamps.py",
            "testing/passed_before.py",
            "tests/conftest.py",
        ):
            self.write(name, (ROOT / name).read_text())
        self.write(".gitignore", "build/\n__pycache__/\nran\nfail\n")
        self.write("testing/harness.py", HARNESS)
        self.write("testing/reference.py", "THREADS = 0\n")
        self.write("tests/pytest.ini", (ROOT / "tests/pytest.ini").read_text())
        self.write("tests/test_a.py", TESTS)
        self.write("tests/test_of_others.py", "")
        self.build = folder / "build" / "dev"
        for name, status in (("good", 0), ("bad", 1), ("other", 0)):
            self.program(name, status)
        self.write("build/dev/CTestTestfile.cmake", CTEST.format(build=self.build, root=folder))
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, status: int, comment: str = "") -> None:
        text = f"#!/bin/sh\n# {comment}\necho {name} >> {self.root}/ran\nexit {status}\n"
        self.write(f"build/dev/{name}", text)
        (self.build / name).chmod(0o755)

    def run(self, *command: str, **env: str) -> tuple[int, list[str], str]:
        """Exit status, what ran, and the output."""
        for name in ("ran", "tests/ran"):
            (self.root / name).unlink(missing_ok=True)
        result = subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env=os.environ | {"GANGWAY_CACHE": str(self.cache)} | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        lines: list[str] = []
        for name in ("ran", "tests/ran"):
            if (self.root / name).exists():
                lines += (self.root / name).read_text().split()
        return result.returncode, sorted(lines), result.stdout + result.stderr

    def ctest(self, *options: str, **env: str) -> tuple[int, list[str], str]:
        return self.run("tools/run_tests", "dev", *options, **env)

    def pytest(self, *options: str, **env: str) -> tuple[int, list[str], str]:
        plugins = ("-p", "pytest_timeout", "-p", "xdist.plugin")  # others take seconds to start
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        return self.run("-m", "pytest", "-q", *plugins, "tests", *options, **env)


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    return Repository(tmp_path / "a", tmp_path / "cache")


def test_what_failed_runs_again_and_what_passed_does_not(repository: Repository) -> None:
    assert repository.ctest()[:2] == (8, ["bad", "good", "other"])
    status, ran, output = repository.ctest()
    assert (status, ran) == (8, ["bad"])
    assert "3 in build/dev, 2 passed before as they are" in output
    repository.program("bad", 0)
    assert repository.ctest()[:2] == (0, ["bad"])
    assert repository.ctest()[:2] == (0, [])


def test_options_select_and_an_empty_selection_fails(repository: Repository) -> None:
    assert repository.ctest("-L", "^some$")[:2] == (8, ["bad", "good"])
    assert repository.ctest()[1] == ["bad", "other"]
    status, ran, output = repository.ctest("-L", "^none$")
    assert (status != 0, ran) == (True, []), output


@pytest.mark.parametrize(
    "change",
    [
        lambda repository: repository.program("good", 0, "other bytes"),
        lambda repository: repository.write(
            "build/dev/CTestTestfile.cmake",
            CTEST.format(build=repository.build, root=repository.root).replace("A=1", "A=2"),
        ),
        lambda repository: repository.write(
            "build/dev/CTestTestfile.cmake",
            CTEST.format(build=repository.build, root=repository.root).replace('"argument"', '"b"'),
        ),
        lambda repository: repository.write("gangway/x/testdata/file", "new"),
        lambda repository: repository.write("tools/sanitizers/lsan.supp", "new"),
        lambda repository: repository.write("build/dev/libfake.so", "new"),
        lambda repository: repository.write(".deps/gangway-stamp", "another plugin"),
    ],
    ids=["bytes", "environment", "arguments", "data", "suppressions", "library", "plugin"],
)
def test_what_may_change_the_outcome_makes_a_test_run(repository: Repository, change) -> None:
    repository.ctest("-R", "good")
    assert repository.ctest("-R", "good")[1] == []
    change(repository)
    assert repository.ctest("-R", "good")[1] == ["good"]


def test_the_callers_environment_counts_and_all_skips_nothing(repository: Repository) -> None:
    repository.ctest("-R", "good")
    assert repository.ctest("-R", "good", GANGWAY_SEEDS="7")[1] == ["good"]
    assert repository.ctest("-R", "good", "--all")[1] == ["good"]
    assert repository.ctest("-R", "good", GANGWAY_NIGHTLY="1")[1] == ["good"]


def test_all_has_the_tests_leave_nothing_out(repository: Repository) -> None:
    repository.write(
        "build/dev/good", f"#!/bin/sh\necho nightly=$GANGWAY_NIGHTLY >> {repository.root}/ran\n"
    )
    assert repository.ctest("-R", "good")[1] == ["nightly="]
    assert repository.ctest("-R", "good", "--all")[1] == ["nightly=1"]


def test_another_clone_finds_the_stamps(repository: Repository, tmp_path: pathlib.Path) -> None:
    repository.ctest("-R", "good")
    clone = tmp_path / "elsewhere"
    shutil.copytree(repository.root, clone)
    other = Repository(clone, repository.cache)
    shutil.copy(repository.build / "good", other.build / "good")  # it names the first one's folder
    assert other.ctest("-R", "good")[1] == []


def test_end_to_end_tests_that_passed_are_left_out_on_request(repository: Repository) -> None:
    repository.write("tests/fail", "")
    assert repository.pytest()[:2] == (1, ["one", "two"])
    assert repository.pytest()[:2] == (1, ["one", "two"]), "without the request, all run"
    status, ran, output = repository.pytest("--skip-passed")
    assert (status, ran) == (1, ["two"])
    assert "1 tests passed before as they are" in output
    (repository.root / "tests/fail").unlink()
    assert repository.pytest("--skip-passed")[:2] == (0, ["two"])
    assert repository.pytest("--skip-passed")[:2] == (0, [])
    assert repository.pytest("--skip-passed", "-k", "no_such_test")[0] == 5
    assert repository.pytest("--skip-passed", GANGWAY_NIGHTLY="1")[1] == ["one", "two"]


def test_parallel_runs_leave_out_what_passed(repository: Repository) -> None:
    repository.write("tests/fail", "")
    assert repository.pytest("-n", "2")[:2] == (1, ["one", "two"])
    (repository.root / "tests/fail").unlink()
    assert repository.pytest("--skip-passed", "-n", "2")[:2] == (0, ["two"])
    status, ran, output = repository.pytest("--skip-passed", "-n", "2")
    assert (status, ran) == (0, []), output
    assert "2 tests passed before as they are" in output


def test_what_may_change_an_end_to_end_test_makes_it_run(repository: Repository) -> None:
    repository.pytest()
    for file in (
        "tests/test_a.py",
        "tests/test_of_others.py",
        "python/a.py",
        "testing/new.py",
        "build/dev/libx.so",
    ):
        repository.write(file, (TESTS if file.endswith("_a.py") else "") + "\nnew = 1\n")
        assert repository.pytest("--skip-passed")[1] == ["one", "two"], file
    assert repository.pytest("--skip-passed")[1] == []


def test_a_page_makes_only_those_tests_run_that_read_it(repository: Repository) -> None:
    repository.write("tests/test_pjrt_conformance.py", TESTS.replace("one", "of_page"))
    repository.pytest()
    for page in ("README.md", "docs/reference/failures.md", "docs/guides/new.md"):
        repository.write(page, "new")
        assert repository.pytest("--skip-passed")[1] == [], page
    repository.write("docs/reference/pjrt.md", "new")
    assert repository.pytest("--skip-passed")[1] == ["of_page", "two"]


def test_what_single_tests_read_is_there() -> None:
    code = "import sys; sys.path[:0] = ['testing', 'tools']; import passed_before; print(passed_before.ALSO)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    for module, paths in ast.literal_eval(said.stdout).items():
        assert (ROOT / "tests" / f"{module}.py").is_file(), module
        assert all((ROOT / path).exists() for path in paths), paths


def test_parts_together_are_all_tests(repository: Repository) -> None:
    found = [repository.pytest("--part", f"{k}/2")[1] for k in (1, 2)]
    assert sorted(found) == [["one"], ["two"]]

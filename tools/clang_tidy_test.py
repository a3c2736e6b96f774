"""tools/clang_tidy checks exactly what has changed. The tests use a small tree with a real ninja build, and a stand-in
for the checker that rejects files that contain BAD."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).parent / "clang_tidy"

CHECKER = """#!/bin/sh
[ "$1" = --version ] && { echo stand-in; exit 0; }
for last; do :; done
echo "$last $*" >> "$(dirname "$0")/checked"
! grep -q BAD "$last"
"""

NINJA = """rule cc
  command = c++ -I.. -I../.. -MD -MF $out.d -c $in -o $out
  deps = gcc
  depfile = $out.d
"""


class Tree:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.root = folder / "repository"
        self.build_folder = self.root / "build" / "dev"
        self.build_folder.mkdir(parents=True)
        (folder / "checker").write_text(CHECKER)
        (folder / "checker").chmod(0o755)
        self.write(".clang-tidy", "Checks: one\n")
        self.write(".gitignore", "build/\n")
        self.write("gangway/a.h", "inline int A() { return 1; }\n")
        self.write("gangway/uses_a.cc", '#include "gangway/a.h"\nint B() { return A(); }\n')
        self.write("gangway/alone.cc", "int C() { return 2; }\n")
        self.git("init", "-q")
        self.commit("2020-01-01T00:00:00Z")
        self.build()

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, timeout=30)

    def commit(self, date: str) -> None:
        self.git("add", "-A")
        os.environ["GIT_COMMITTER_DATE"] = date
        try:
            self.git("commit", "-q", "-m", "m")
        finally:
            del os.environ["GIT_COMMITTER_DATE"]

    def merge(self) -> None:
        """Makes HEAD the last merged state."""
        head = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(head, cwd=self.root, check=True, capture_output=True, text=True)
        base = f"# A comment.\n{commit.stdout}"
        self.write("tools/versions/clang_tidy_base.txt", base)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def build(self) -> None:
        sources = sorted((self.root / "gangway").glob("*.cc"))
        rules, commands = NINJA, []
        for source in sources:
            rules += f"build {source.stem}.o: cc {source}\n"
            command = f"c++ -I{self.root} -c {source} -o {source.stem}.o"
            commands.append(
                {"directory": str(self.build_folder), "file": str(source), "command": command}
            )
        (self.build_folder / "build.ninja").write_text(rules.replace("-I../..", f"-I{self.root}"))
        (self.build_folder / "compile_commands.json").write_text(json.dumps(commands))
        subprocess.run(
            ["ninja", "-C", self.build_folder], check=True, timeout=60, capture_output=True
        )

    def check(self, *flags: str) -> tuple[int, list[str], str]:
        """Exit status, checked files, output."""
        checked = self.folder / "checked"
        checked.unlink(missing_ok=True)
        program = str(self.folder / "checker")
        result = subprocess.run(
            [sys.executable, TOOL, "--root", self.root, "--program", program, *flags],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | {"GANGWAY_CACHE": str(self.folder / "cache"), "JOBS": "1"},
        )
        lines = checked.read_text().splitlines() if checked.exists() else []
        return result.returncode, [line.split()[0] for line in lines], result.stdout + result.stderr


ALONE, USES_A = "gangway/alone.cc", "gangway/uses_a.cc"


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    return Tree(tmp_path)


def test_what_has_passed_is_not_checked_again(tree: Tree) -> None:
    assert tree.check()[:2] == (0, [ALONE, USES_A])
    status, files, output = tree.check()
    assert (status, files) == (0, [])
    assert "2 unchanged since they passed" in output


def test_all_brings_the_includers_of_a_changed_header_back(tree: Tree) -> None:
    tree.check("--all")
    tree.write("gangway/a.h", "inline int A() { return 3; }\n")
    assert tree.check("--all")[1] == [USES_A]  # even before the next build
    tree.build()
    assert tree.check("--all")[1] == []


def test_all_knows_a_header_that_is_new_to_a_file(tree: Tree) -> None:
    tree.check("--all")
    tree.write(ALONE, '#include "gangway/a.h"\nint C() { return A(); }\n')
    tree.build()
    assert tree.check("--all")[1] == [ALONE]
    tree.write("gangway/a.h", "inline int A() { return 4; }\n")
    assert sorted(tree.check("--all")[1]) == [ALONE, USES_A]


def test_other_checks_or_another_command_check_again(tree: Tree) -> None:
    tree.check()
    tree.write(".clang-tidy", "Checks: two\n")
    assert tree.check()[1] == [ALONE, USES_A]
    commands = tree.build_folder / "compile_commands.json"
    commands.write_text(commands.read_text().replace("-c ", "-DX -c "))
    assert tree.check()[1] == [ALONE, USES_A]


def test_a_finding_fails_until_it_is_mended(tree: Tree) -> None:
    tree.write(ALONE, "int Bad();  // BAD\n")
    tree.build()
    for _ in range(2):
        status, files, output = tree.check()
        assert status == 1
        assert ALONE in files
        assert f"1 files have findings: {ALONE}" in output
    tree.write(ALONE, "int Good();\n")
    assert tree.check()[:2] == (0, [ALONE])


def test_a_file_whose_includes_are_unknown_is_always_checked(tree: Tree) -> None:
    (tree.build_folder / ".ninja_deps").unlink()
    for _ in range(2):
        assert tree.check("--all")[1] == [ALONE, USES_A]


def test_without_arguments_only_what_differs_from_the_merged_state_is_checked(tree: Tree) -> None:
    tree.merge()
    assert tree.check()[:2] == (0, [])
    tree.write(ALONE, "int C() { return 3; }\n")
    assert tree.check()[1] == [ALONE]
    assert tree.check()[1] == []
    tree.write(ALONE, "int C() { return 4; }\n")
    tree.commit("2021-01-01T00:00:00Z")
    assert tree.check()[1] == [ALONE], "committed, but not merged"
    tree.merge()
    tree.write(ALONE, "int C() { return 5; }\n")
    tree.git("checkout", "-q", "--", ALONE)
    assert tree.check()[1] == []


def test_comments_and_layout_are_not_code_but_instructions_to_the_checker_are(tree: Tree) -> None:
    tree.merge()
    tree.write(ALONE, "// What for. /*\nint C() {\n  return 2;  /* two */\n}\n")
    assert tree.check()[1] == []
    tree.write(ALONE, 'const char* C() { return "// no comment"; }\n')
    assert tree.check()[1] == [ALONE]
    tree.write(ALONE, "int C() { return 2; }  // NOLINT\n")
    assert tree.check()[1] == [ALONE]


def test_a_header_is_checked_through_a_source(tree: Tree) -> None:
    tree.merge()
    tree.write("gangway/a.h", "inline int A() { return 3; }\n")
    assert tree.check()[1] == [USES_A]


def test_the_tests_of_a_large_change_are_left_to_all(tree: Tree) -> None:
    tree.merge()
    tree.write(ALONE, "int C() { return 3; }\n")
    tree.write("gangway/alone_test.cc", "int T();\n")
    tree.build()
    status, checked, output = tree.check("--large", "1")
    assert (status, checked) == (0, [ALONE])
    assert "a large change, whose 1 tests --all checks" in output
    assert tree.check("--large", "2")[1] == ["gangway/alone_test.cc"]


def test_where_the_merged_state_is_unknown_every_source_is_checked(tree: Tree) -> None:
    tree.write("tools/versions/clang_tidy_base.txt", "0123456789012345678901234567890123456789\n")
    assert tree.check()[1] == [ALONE, USES_A]


def test_precompiled_headers_are_taken_out(tree: Tree) -> None:
    commands = tree.build_folder / "compile_commands.json"
    precompiled = "-Winvalid-pch -include /x/cmake_pch.hxx -c "
    commands.write_text(commands.read_text().replace("-c ", precompiled))
    tree.check()
    used = (tree.build_folder / "clang_tidy" / "compile_commands.json").read_text()
    assert "pch" not in used and "alone.cc" in used


def test_base_chooses_what_differs(tree: Tree) -> None:
    tree.write("gangway/new.cc", "int D();\n")
    tree.build()
    assert tree.check("HEAD")[1] == ["gangway/new.cc"]


def test_all_has_the_analyzer_and_its_own_stamps(tree: Tree) -> None:
    tree.check()
    assert tree.check("--all")[1] == [ALONE, USES_A]
    assert "-clang-analyzer" not in (tree.folder / "checked").read_text()
    assert tree.check("--all")[1] == []
    tree.write(ALONE, "int E();\n")
    assert tree.check("--all")[1] == [ALONE]
    assert tree.check()[1] == []  # a pass with the analyzer is a pass without


def test_time_that_runs_out_is_said_and_fails_all(tree: Tree) -> None:
    status, files, output = tree.check("--all", "--limit-s", "0")
    assert (status, files) == (1, [])
    assert f"not checked within 0 s: {ALONE} {USES_A}" in output


def test_parts_together_are_all_files(tree: Tree) -> None:
    assert tree.check("--all", "--part", "1/2")[1] == [ALONE]
    assert tree.check("--all", "--part", "2/2")[1] == [USES_A]

"""The native programs and libraries of the end-to-end tests (tests/native), as the dev build has made them. One that is
missing, or older than its sources, is refused by name: a test that is run by hand would else run what the sources no
longer say. Ninja knows the sources, and takes 0.1 s to answer. GANGWAY_NATIVE_E2E names the folder tests/native of
another build, whose programs are taken as they are.
"""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess

from harness import PATIENCE, ROOT, Cluster

BUILD = ROOT / "build" / "dev"
OTHER_BUILD = os.environ.get("GANGWAY_NATIVE_E2E", "")


@functools.cache
def check_built(target: str, build: pathlib.Path = BUILD) -> None:
    """Fails unless the files of a target of the build are as a build would make them now."""
    ninja = ["ninja", "-C", str(build), "-n", target]
    said = subprocess.run(ninja, capture_output=True, text=True, check=False)
    assert said.returncode == 0 and "ninja: no work to do." in said.stdout, (
        f"{target} is missing in {build}, or older than its sources: build it first "
        f"(tools/build.sh {build.name} {target})\n{said.stdout[-500:]}{said.stderr}"
    )


def native(target: str, folder: str = "tests/native") -> pathlib.Path:
    """The program that a target makes, in a folder of the build."""
    if OTHER_BUILD:
        return pathlib.Path(OTHER_BUILD).parent.parent / folder / target
    check_built(target)
    return BUILD / folder / target


class Driven:
    """A program of tests/native that does what each line of its input says, and answers by one line."""

    def __init__(self, program: str, cluster: Cluster, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(native(program)), cluster.control, cluster.token, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str) -> str:
        to, answers = self._process.stdin, self._process.stdout
        assert to and answers
        to.write(line + "\n")
        to.flush()
        answer = answers.readline()
        assert answer, f"the client ended at '{line}'"
        return answer.strip()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kills it."""
        self._process.kill()
        self._process.communicate(timeout=10 * PATIENCE)

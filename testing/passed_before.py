"""Which end-to-end tests passed before as they are, so that they need not run again (tools/stamps.py).

A test depends on the bytes of the command, the plugin and the native programs, on the Python package and the examples,
on the code that tests share, on its own file, on the pages of the documentation that it reads, and on the machine. The
nightly run, and runs with GANGWAY_BIN or its like, skip nothing.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
from collections.abc import Iterable

import stamps
from harness import ROOT

BUILD = ROOT / "build" / "dev"
# What any test may read or run.
SHARED = [
    "python",
    "testing",
    "examples",
    "deploy",
    "pyproject.toml",
    "tools/*.sh",
    "tools/versions",
    ":!tools/versions/clang_tidy_base.txt",
]
SHARED += ["tests", ":!tests/test_*.py", "gangway/client/include", "gangway/xla/*.proto"]
# What single tests read besides.
ALSO = {
    "custom_calls_test": ["gangway/compiler/check_calls/testdata"],
    "ifrt_descriptors_test": ["gangway/xla/option_table.h"],
    "test_documentation": ["README.md", "docs/start.md", "docs/guides", "tools/docs/recording.py"],
    "test_kubernetes": ["gangway/cli/testdata"],
    "test_pjrt_conformance": ["docs/reference/pjrt.md"],
    "test_wheel_platform": ["tools/wheel_platform.py"],
}
# Of the build that is tested.
OTHER_BUILDS = (
    "GANGWAY_BIN",
    "GANGWAY_NATIVE_E2E",
    "GANGWAY_PJRT_PLUGIN",
    "GANGWAY_CPU_PLUGIN",
    "GANGWAY_PLUGIN",
)


def programs() -> list[pathlib.Path]:
    native = [each for each in (BUILD / "tests" / "native").glob("*_e2e_test") if each.is_file()]
    return sorted([BUILD / "gangway" / "cli" / "gangway", *native, *BUILD.rglob("*.so")])


@functools.cache
def code_of(module: str) -> list[str]:
    """A hash of each file of tests that the module consists of: its own, and those that it imports."""
    found: dict[str, str] = {}
    left = [module]
    while left:
        name = left.pop()
        path = ROOT / "tests" / f"{name}.py"
        if name not in found and path.exists():
            found[name] = stamps.fingerprint(path)
            left += re.findall(r"^(?:from|import) (test_\w+)", path.read_text(), re.MULTILINE)
    return [f"{name} {found[name]}" for name in sorted(found)]


@functools.cache
def own(module: str) -> list[str]:
    """What only the tests of this module depend on."""
    return (
        [*code_of(module), *stamps.files_under(*ALSO[module])]
        if module in ALSO
        else code_of(module)
    )


class PassedBefore:
    """The stamps of end-to-end tests; `None` in place of a stamp if a test always runs."""

    def __init__(self) -> None:
        self.stamps = stamps.Stamps("e2e")
        self.environment = stamps.environment()  # before tests change it
        self.shared: list[str] | None = None
        self.counts = not any(name in os.environ for name in OTHER_BUILDS)
        self.skips = self.counts and not os.environ.get("GANGWAY_NIGHTLY")

    def stamp(self, nodeid: str) -> pathlib.Path | None:
        if not self.counts:
            return None
        if self.shared is None:
            binaries = [
                f"{each.name} {stamps.binary(each)}" for each in programs() if each.exists()
            ]
            self.shared = [*self.environment, *binaries, *stamps.files_under(*SHARED)]
        module = pathlib.PurePath(nodeid.partition("::")[0]).stem
        return self.stamps.path([nodeid, *own(module), *self.shared])

    def is_known(self, nodeid: str) -> bool:
        return self.skips and self.stamps.is_set(self.stamp(nodeid))

    def note(self, nodeids: Iterable[str]) -> None:
        for nodeid in nodeids:
            if stamp := self.stamp(nodeid):
                stamp.touch()
        self.stamps.prune()

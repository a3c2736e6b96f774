"""Stamps of outcomes that cannot have changed: an empty file for each, in the user's cache, whose name is a hash of all
that the outcome depends on. What passed before, as it is now, has a stamp, and is not computed again. Stamps that were
not used for DAYS are deleted.

Paths are named relative to the repository, so that every clone of it finds the stamps of the others.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent
DAYS = 30


def cache_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("GANGWAY_CACHE") or pathlib.Path.home() / ".cache/gangway")


class Stamps:
    """The stamps of one kind of outcome."""

    def __init__(self, kind: str) -> None:
        self.folder = cache_folder() / kind
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, parts: Iterable[str]) -> pathlib.Path:
        return self.folder / hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @staticmethod
    def is_set(stamp: pathlib.Path | None) -> bool:
        if stamp is None or not stamp.exists():
            return False
        os.utime(stamp)
        return True

    def prune(self) -> None:
        oldest = time.time() - DAYS * 86400
        for stamp in self.folder.iterdir():
            if stamp.stat().st_mtime < oldest:
                stamp.unlink(missing_ok=True)


def digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def fingerprint(path: pathlib.Path, root: pathlib.Path = ROOT) -> str:
    """A hash of the content of a file of ours; size and time of a system file, which are many and large."""
    if not path.exists():
        return "gone"
    if path.is_relative_to(root):
        return digest(path)
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def files_under(*folders: str) -> list[str]:
    """A line for each file of the repository, tracked or new, below these folders: its path and its content's hash."""
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *folders,
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = sorted(set(listed.stdout.split("\0")) - {""})
    return [f"{path} {fingerprint(ROOT / path)}" for path in found if (ROOT / path).is_file()]


@functools.cache
def binary(path: pathlib.Path) -> str:
    """A hash of a program or library, and of the shared libraries that it loads at its start."""
    listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False)
    libraries = re.findall(r"(/\S+) \(0x", listed.stdout)
    parts = [fingerprint(path), *(fingerprint(pathlib.Path(each).resolve()) for each in libraries)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def environment() -> list[str]:
    """What of this process's environment and of the machine may decide how a test ends."""
    kept = re.compile(r"GANGWAY_|GTEST_|XLA_|JAX_|OPENBLAS_|TF_")
    not_ours = {
        "GANGWAY_CACHE",
        "GANGWAY_CACHE_DIR",
        "GANGWAY_ALLOWANCE",
    }  # folders and files of a run
    found = [f"{k}={v}" for k, v in os.environ.items() if kept.match(k) and k not in not_ours]
    cpu = re.findall(
        r"^(?:model name|flags)\s*:.*", pathlib.Path("/proc/cpuinfo").read_text(), re.M
    )
    places = [
        pathlib.Path(f"{folder}/gangway-stamp") for folder in (ROOT / ".deps", ROOT / ".venv")
    ]
    stamps = [each.read_text() if each.exists() else "" for each in places]
    return [*sorted(found), *sorted(set(cpu)), str(os.cpu_count()), os.uname().release, *stamps]

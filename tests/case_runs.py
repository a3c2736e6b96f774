"""Runs of cases (tests/run_cases.py) on a backend, and their outcomes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from harness import PATIENCE, ROOT, client_environment

DEVICES = 8  # of each cluster that runs cases
REFERENCE_DAYS = 30  # a cached reference outcome unused for this long is deleted


@dataclasses.dataclass
class Outcome:
    """How one case ended on one backend."""

    value: Any = None
    error: str = ""


def records(path: pathlib.Path) -> Iterable[tuple[Any, ...]]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return


def start_cases(
    backend: str,
    names: list[str],
    out: pathlib.Path,
    port: int = 0,
    env: dict[str, str] | None = None,
    per_worker: int = DEVICES,
    launcher: Sequence[str] = (sys.executable,),
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *[*launcher, str(ROOT / "tests" / "run_cases.py")],
            *["--backend", backend, "--out", str(out)],
            *["--per-worker", str(per_worker), "--cases", *names],
        ],
        env={**client_environment(port), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcomes(path: pathlib.Path, output: str, code: int) -> dict[str, Outcome]:
    """The outcomes in the runner's file; an unfinished case gets the tail of the runner's output."""
    found: dict[str, Outcome] = {}
    for kind, name, *rest in records(path) if path.exists() else []:
        if kind == "start":
            found[name] = Outcome(
                error=f"the process ended with status {code} in this case:\n{output[-6000:]}"
            )
        elif kind == "done":
            found[name] = Outcome(value=rest[0])
        else:
            found[name] = Outcome(error=rest[0])
    return found


def run_cases(
    backend: str,
    names: list[str],
    folder: pathlib.Path,
    port: int = 0,
    timeout_s: float = 240,
    env: dict[str, str] | None = None,
    **options: Any,
) -> dict[str, Outcome]:
    """Every case's outcome; after a crash, a new process runs the rest. `options`: see start_cases."""
    found: dict[str, Outcome] = {}
    deadline = time.monotonic() + timeout_s * PATIENCE
    for attempt in range(len(names)):
        left = [name for name in names if name not in found]
        if not left:
            break
        out = folder / f"{backend}-{attempt}.pickle"
        process = start_cases(backend, left, out, port, env, **options)
        try:
            output, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output = (
                process.communicate()[0]
                + f"\nall cases together took more than {timeout_s * PATIENCE:g} s"
            )
        new = outcomes(out, output, process.returncode)
        found.update(new or {name: Outcome(error=output[-6000:]) for name in left})
        if time.monotonic() > deadline:
            break
    return {name: found.get(name, Outcome(error="not run: out of time")) for name in names}


def reference_key(names: list[str], per_worker: int) -> str:
    """A hash of everything that the outcomes of cases on the reference depend on."""
    sources = [
        *(ROOT / "tests" / "cases").glob("*.py"),
        ROOT / "tests" / "run_cases.py",
        ROOT / "testing" / "reference.py",
    ]
    sources += [ROOT / "tools" / "versions" / f"{f}.txt" for f in ("requirements", "wheels")]
    cpu = re.findall(
        r"^(?:model name|flags)\s*:.*", pathlib.Path("/proc/cpuinfo").read_text(), re.M
    )
    parts = [repr([names, per_worker, os.cpu_count(), sorted(set(cpu))]).encode()]
    parts += [path.read_bytes() for path in sorted(sources)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def reference_outcomes(
    names: list[str], folder: pathlib.Path, per_worker: int
) -> dict[str, Outcome]:
    """The outcome of each case on the same plugin in-process. Its bits do not vary (the pool's size is pinned), so
    the user's cache keeps it for REFERENCE_DAYS after its last use; the nightly run recomputes it.
    """
    cache = pathlib.Path(
        os.environ.get("GANGWAY_CACHE") or pathlib.Path.home() / ".cache" / "gangway"
    )
    kept = cache / "reference" / f"{reference_key(names, per_worker)}.pickle"
    if kept.exists() and not os.environ.get("GANGWAY_NIGHTLY"):
        os.utime(kept)
        values: dict[str, Any] = pickle.loads(kept.read_bytes())
        return {name: Outcome(value=value) for name, value in values.items()}
    found = run_cases("reference", names, folder, per_worker=per_worker)
    if not any(outcome.error for outcome in found.values()):
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = folder / "reference.part"
        part.write_bytes(pickle.dumps({name: outcome.value for name, outcome in found.items()}))
        shutil.copy(part, kept.with_suffix(f".{os.getpid()}"))
        os.replace(kept.with_suffix(f".{os.getpid()}"), kept)
    for old in kept.parent.glob("*.pickle") if kept.parent.exists() else []:
        if time.time() - old.stat().st_mtime > REFERENCE_DAYS * 86400:
            old.unlink(missing_ok=True)
    return found

"""Runs of cases (tests/run_cases.py) on a backend, and their outcomes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness import PATIENCE, PYTHON, ROOT, client_environment

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
    launcher: Sequence[str] = (),
    package: str = "cases",
) -> subprocess.Popen[str]:
    """`launcher`: the Python, if it is not the one of this run."""
    of_this_run = PYTHON if backend.startswith("gangway") else sys.executable
    return subprocess.Popen(
        [
            *[*(launcher or (of_this_run,)), str(ROOT / "tests" / "run_cases.py")],
            *["--backend", backend, "--out", str(out)],
            *["--per-worker", str(per_worker), "--package", package, "--cases", *names],
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


def reference_key(depends_on: Any, sources: Iterable[pathlib.Path]) -> str:
    """A hash of everything that an outcome on the reference depends on: `depends_on`, `sources`, the pinned versions,
    the options of XLA and JAX, and the processor.
    """
    sources = [*sources, ROOT / "testing" / "reference.py"]
    sources += [ROOT / "tools" / "versions" / f"{f}.txt" for f in ("requirements", "wheels")]
    cpu = re.findall(
        r"^(?:model name|flags)\s*:.*", pathlib.Path("/proc/cpuinfo").read_text(), re.M
    )
    options = sorted(f"{k}={v}" for k, v in os.environ.items() if re.match("XLA_|JAX_", k))
    parts = [repr([depends_on, options, os.cpu_count(), sorted(set(cpu))]).encode()]
    parts += [path.read_bytes() for path in sorted(sources)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def kept(key: str, compute: Callable[[], Any]) -> Any:
    """An outcome on the reference, from the user's cache or else computed; None is not kept. The bits of the reference
    do not vary (the pool's size is pinned), so the cache keeps them for REFERENCE_DAYS after their last use; the
    nightly run recomputes them.
    """
    cache = pathlib.Path(
        os.environ.get("GANGWAY_CACHE") or pathlib.Path.home() / ".cache" / "gangway"
    )
    path = cache / "reference" / f"{key}.pickle"
    if path.exists() and not os.environ.get("GANGWAY_NIGHTLY"):
        os.utime(path)
        return pickle.loads(path.read_bytes())
    value = compute()
    if value is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(value))
        os.replace(part, path)
    for old in path.parent.glob("*.pickle") if path.parent.exists() else []:
        if time.time() - old.stat().st_mtime > REFERENCE_DAYS * 86400:
            old.unlink(missing_ok=True)
    return value


def reference_outcomes(
    names: list[str], folder: pathlib.Path, per_worker: int, package: str = "cases"
) -> dict[str, Outcome]:
    """The outcome of each case on the same plugin in-process."""
    found: dict[str, Outcome] = {}

    def compute() -> dict[str, Any] | None:
        found.update(run_cases("reference", names, folder, per_worker=per_worker, package=package))
        if any(outcome.error for outcome in found.values()):
            return None
        return {name: outcome.value for name, outcome in found.items()}

    sources = [ROOT / "tests" / "run_cases.py"]
    for each in sorted({"cases", package}):
        sources += (ROOT / "tests" / each).glob("*.py")
    values = kept(reference_key([names, per_worker], sources), compute)
    if values is None:
        return found
    return {name: Outcome(value=value) for name, value in values.items()}


@dataclasses.dataclass
class Training:
    """What examples/train_lm.py wrote: each step's loss as a hexadecimal float, and its output."""

    losses: list[str]
    output: str


def reference_script(
    script: pathlib.Path,
    flags: list[str],
    devices: int,
    folder: pathlib.Path,
    *,
    file_flag: str,
    sources: Iterable[pathlib.Path] = (),
) -> tuple[str, str]:
    """A run of a script on the same plugin in-process: the file that it writes where `file_flag` says, and its output.
    `sources` are the files, beside the script, that these depend on.
    """

    def compute() -> tuple[str, str]:
        out = folder / "reference-out"
        run = subprocess.run(
            [
                *[
                    sys.executable,
                    str(ROOT / "testing" / "reference.py"),
                    "--devices",
                    str(devices),
                ],
                *[str(script), *flags, file_flag, str(out)],
            ],
            capture_output=True,
            text=True,
            timeout=150 * PATIENCE,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return out.read_text(), run.stdout

    return kept(reference_key([flags, devices], [script, *sources]), compute)


def reference_training(flags: list[str], devices: int, folder: pathlib.Path) -> Training:
    """A run of examples/train_lm.py on the same plugin in-process."""
    text = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))  # what it trains on
    script = ROOT / "examples" / "train_lm.py"
    losses, output = reference_script(
        script, flags, devices, folder, file_flag="--losses", sources=text
    )
    return Training(losses.split(), output)

"""tools/venv.sh: an environment that exists is used again, and one of older versions is removed after a month."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSIONS = ROOT / "tools" / "versions" / "jax-0.9.txt"
DAY_S = 86400


def make(folder: pathlib.Path, unused_days: float) -> pathlib.Path:
    folder.mkdir(parents=True)
    (folder / "complete").touch()
    then = time.time() - unused_days * DAY_S
    os.utime(folder / "complete", (then, then))
    return folder


def test_only_those_of_an_earlier_state_that_nobody_uses_are_removed(
    tmp_path: pathlib.Path,
) -> None:
    venvs = tmp_path / "venvs"
    now = hashlib.sha256(VERSIONS.read_bytes()).hexdigest()[:12]
    wanted = make(venvs / f"jax-0.9-{now}", 40)
    kept = [
        make(venvs / f"jax-0.9-{'a' * 12}", 20),
        make(venvs / f"jax-0.9-{'b' * 12}-trixie", 40),  # of a bare Debian
        make(venvs / f"jax-0.8-{'b' * 12}", 40),
    ]
    old = make(venvs / f"jax-0.9-{'b' * 12}", 40)
    made = subprocess.run(
        [ROOT / "tools" / "venv.sh", "jax-0.9"],
        env={**os.environ, "GANGWAY_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == str(wanted / "bin" / "python")
    assert wanted.exists() and all(each.exists() for each in kept)
    assert not old.exists()
    assert time.time() - (wanted / "complete").stat().st_mtime < DAY_S, "its use is not noted"

"""The commands and the script that the first pages show are run as they are there: README.md and docs/start.md. What
installs and builds is left out, and what runs in an environment with the wheel: other tests stand on it.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest
from harness import PYTHON, ROOT, ends_with_this_process, free_port

pytestmark = pytest.mark.timeout(180)  # each starts a script or two
NOT_RUN = ("make ", "tools/setup.sh ", "python3 -m venv ", "source ", "pip ", "gangway ")


def commands(page: str) -> list[str]:
    """The lines of the indented blocks of code."""
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text())
    lines = [line[4:] for line in text.splitlines() if re.match(r" {4}[a-z]", line)]
    return [line for line in lines if not line.startswith(NOT_RUN)]


def fenced(page: str, language: str) -> str:
    found = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", (ROOT / page).read_text())
    assert len(found) == 1, f"{page} has {len(found)} blocks of {language}"
    return str(found[0])


def run_all(lines: list[str], folder: pathlib.Path) -> dict[str, str]:
    """Command -> what it prints. Ends the cluster that they start, if they do not."""
    ends_with_this_process()
    environment = os.environ | {
        "GANGWAY_PORT": str(free_port()),
        "GANGWAY_STATE_DIR": str(folder / "state"),
        "GANGWAY_PYTHON": PYTHON,
    }
    for name in ("bin", "examples"):
        (folder / name).symlink_to(ROOT / name)
    told = {}
    try:
        for line in lines:
            ran = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=150,
            )
            assert ran.returncode == 0, f"`{line}` exits with {ran.returncode}: {ran.stderr}"
            told[line.partition(" #")[0].strip()] = ran.stdout
    finally:
        down = ["bin/gangway", "down"]
        subprocess.run(down, cwd=folder, env=environment, capture_output=True, timeout=60)
    return told


def test_first_page(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ten.py").write_text(fenced("README.md", "python"))
    told = run_all(commands("README.md"), tmp_path)
    assert told["bin/gangway run ten.py"] == fenced("README.md", "text")
    assert told["bin/gangway why"] == "nothing waits\n"


def test_start(tmp_path: pathlib.Path) -> None:
    told = run_all(commands("docs/start.md"), tmp_path)
    assert told["bin/gangway run examples/survive.py"].startswith("8 devices, 1 process\n")
    assert "island0/worker1" in told["bin/gangway status"]
    assert "traceEvents" in (tmp_path / "trace.json").read_text()
    assert "has ended" in told["bin/gangway down"]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_recording(tmp_path: pathlib.Path) -> None:
    """The session on the first page can be recorded again: the commands do what it shows."""
    ends_with_this_process()
    picture = tmp_path / "session.svg"
    subprocess.run(
        [str(ROOT / ".venv/bin/python"), str(ROOT / "tools/docs/recording.py"), str(picture)],
        check=True,
        timeout=500,
    )
    shown = re.sub(r"<[^>]*>", "", picture.read_text())
    for words in ("is silent", "DATA_LOSS", "back to step", "step 1000", "has ended"):
        assert words in shown

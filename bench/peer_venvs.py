"""Peers of the benchmarks that have venvs of their own (tools/venv.sh), and what they leave behind. Standard library
only.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

VENV_LIMIT_S = 600
VENV = pathlib.Path(__file__).resolve().parent.parent / "tools" / "venv.sh"


def python_of(venv: str) -> str:
    """The Python of tools/versions/VENV.txt. Empty, with a message, if it cannot be installed."""
    try:
        command = [str(VENV), venv]
        made = subprocess.run(command, capture_output=True, text=True, timeout=VENV_LIMIT_S)
        why = made.stderr[-500:] if made.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        print(f"bench: no {venv} to compare with: {why}", file=sys.stderr, flush=True)
        return ""
    return made.stdout.strip()


def signal_all_of(folder: str, number: signal.Signals) -> None:
    """To all other processes whose command line or environment names `folder`, by process id."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if folder.encode() in words and int(path.name) != os.getpid():
                os.kill(int(path.name), number)


def end_all_of(folder: str) -> None:
    signal_all_of(folder, signal.SIGKILL)

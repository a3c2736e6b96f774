"""Cleans up after a test run that was killed: its clusters are separate processes, which it can no longer stop.

    python testing/leftovers.py RUN

Reads folder names, one per line. When standard input ends, it sends SIGTERM to all processes with
GANGWAY_TEST_RUN=RUN in their environment, then SIGKILL to the survivors, and removes the folders. After an orderly
run it finds nothing to do.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shutil
import signal
import sys

MARKER = "GANGWAY_TEST_RUN"
END_S = 10


def processes_with(entry: str) -> list[int]:
    """Live processes that were started with this entry, NAME=value, in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and entry.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def end(pids: list[int], with_signal: signal.Signals, within_s: float) -> None:
    """Returns when all have ended, or when none has ended for `within_s`."""
    watched = []
    for pid in pids:
        with contextlib.suppress(OSError):
            watched.append(os.pidfd_open(pid))
            signal.pidfd_send_signal(watched[-1], with_signal)
    poll = select.poll()
    for fd in watched:
        poll.register(fd, select.POLLIN)
    while watched and (ended := [fd for fd, _ in poll.poll(within_s * 1000)]):
        for fd in ended:
            poll.unregister(fd)
            os.close(fd)
            watched.remove(fd)


def main() -> None:
    os.setsid()  # a signal to the run's process group must not end this process
    entry = f"{MARKER}={sys.argv[1]}"
    folders = {line.rstrip("\n") for line in sys.stdin} - {""}
    end(processes_with(entry), signal.SIGTERM, END_S)
    end(processes_with(entry), signal.SIGKILL, END_S)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

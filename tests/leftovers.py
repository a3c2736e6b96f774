"""Ends what a test run leaves behind when it is killed: clusters are processes of their own, and a run that
SIGKILL ends cannot stop them.

    python tests/leftovers.py

Reads names of state folders, one a line. When its standard input ends, whichever way, all processes whose
environment names one of them are told to end, and killed if they do not; so is the folder. After a
run that stopped its clusters there is nothing to do.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shutil
import signal
import sys

END_S = 10


def processes_of(state_dirs: set[str]) -> list[int]:
    """Live processes, children of clusters and clients alike."""
    markers = {f"GANGWAY_STATE_DIR={folder}".encode() for folder in state_dirs}
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is not ours
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            variables = (path / "environ").read_bytes().split(b"\0")
            if state != "Z" and markers.intersection(variables):
                found.append(int(path.name))
    return found


def end(pids: list[int], with_signal: signal.Signals, within_s: float) -> None:
    watched = []
    for pid in pids:
        with contextlib.suppress(OSError):
            watched.append(os.pidfd_open(pid))
            signal.pidfd_send_signal(watched[-1], with_signal)
    poll = select.poll()
    for fd in watched:
        poll.register(fd, select.POLLIN)
    while watched:
        ended = [fd for fd, _ in poll.poll(within_s * 1000)]
        if not ended:
            return
        for fd in ended:
            poll.unregister(fd)
            os.close(fd)
            watched.remove(fd)


def main() -> None:
    os.setsid()  # a signal to the run's process group is not for this one
    state_dirs = {line.rstrip("\n") for line in sys.stdin}
    state_dirs.discard("")
    end(processes_of(state_dirs), signal.SIGTERM, END_S)
    end(processes_of(state_dirs), signal.SIGKILL, END_S)
    for folder in state_dirs:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

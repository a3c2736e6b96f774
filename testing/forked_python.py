#!/usr/bin/python3 -IS
"""Takes the place of `python` for scripts that use JAX: the script runs in a process that is forked from one that has
imported it (forking.py). This process passes its streams, arguments, environment and signals on, ends as the script
ends, and the script ends with it. Where that is not the same, a Python is started: for other options than -c and -m,
and with variables that JAX reads when it is imported.

    forked_python.py FILE | -c TEXT | -m MODULE [ARGUMENT...]
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
from types import FrameType

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE))

from forking import PYTHON_OF_SERVER, SERVER, Fork  # noqa: E402


def same_if_forked(arguments: list[str]) -> bool:
    return (
        SERVER in os.environ
        and bool(arguments)
        and (arguments[0] in ("-c", "-m") or not arguments[0].startswith("-"))
        and not any(name.startswith(("JAX_", "XLA_")) for name in os.environ)
    )


def main() -> None:
    arguments = sys.argv[1:]
    if not same_if_forked(arguments):
        python = os.environ.get(PYTHON_OF_SERVER, str(HERE.parent / ".venv" / "bin" / "python"))
        os.execv(python, [python, *arguments])
    fork = Fork(arguments, os.environ, (0, 1, 2))

    def forward(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            fork.send_signal(number)

    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(each, forward)
    with open(os.devnull, "r+") as nothing:  # only the script has the pipes
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    status = fork.wait() or 0
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main()

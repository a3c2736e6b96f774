"""A process that holds a folder of secrets, and runs a command that uses it, while its owner lives.

`gangway.ray` passes this file's text to `python -I -S -c`, also on hosts without this package, so
it imports the standard library only. Its first line of standard input is JSON:

    {"parents": [folders], "files": {name: base64}, "command": [words], "leave_s": seconds}

It makes a folder of mode 0700 in the first of `parents` that takes one, writes the files there
(mode 0600), and runs the command. There, {folder} stands for the folder, and {scratch} for another
one, in the last of `parents`, for what is large and not secret. It prints `folder PATH` for each,
then each line of the command's output as `line TEXT`, and at the end `exit STATUS`: then nothing is
left of any of it. If it cannot start, it prints `error REASON` instead.

When standard input ends, because the owner wants it so or has died in whatever way, the command
gets SIGTERM, and SIGKILL after `leave_s`. Without a command, the folder alone lasts until then.
This process leaves the owner's session and is not its child, so that it outlives the owner: Ray
kills the children of an actor that ends. If it is killed itself, the kernel ends the command by
SIGTERM.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

LINE_BYTES_MAX = 4000  # below PIPE_BUF: a line is written whole or not at all
OUTPUT_S = 2  # for what a command has printed, and processes that it left behind hold open
PR_SET_PDEATHSIG = 1


def say(kind: str, text: object) -> None:
    """An owner that reads too slowly misses lines; one that is gone misses all."""
    line = f"{kind} {text}".replace("\n", " ").encode()[:LINE_BYTES_MAX]
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(1, line + b"\n")


def detach() -> None:
    """Continues in a child of init, in a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)


def make_folder(parents: list[str], files: dict[str, str]) -> str:
    """Raises OSError, with the reason of the last one, if no parent takes it."""
    problem: OSError = FileNotFoundError("no folder was named")
    for parent in parents:
        try:
            folder = tempfile.mkdtemp(prefix="gangway-ray-", dir=parent)
        except OSError as error:
            problem = error
            continue
        try:
            for name, text in files.items():
                path = os.path.join(folder, name)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(base64.b64decode(text))
            return folder
        except OSError as error:  # such as a full file system
            problem = error
            shutil.rmtree(folder, ignore_errors=True)
    raise problem


def end_with_parent() -> None:
    """Runs in the command's process before it becomes the command."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def pump(output: IO[bytes]) -> None:
    for line in output:
        say("line", line.decode(errors="replace").rstrip())


def end_with_input(child: subprocess.Popen[bytes], leave_s: float) -> None:
    sys.stdin.buffer.read()
    child.terminate()
    late = threading.Timer(leave_s, child.kill)
    late.daemon = True
    late.start()


def run(command: list[str], leave_s: float) -> int:
    """Runs the command to its end, or until standard input ends; returns its exit status."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_parent,  # this process has one thread
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    assert child.stdout
    reader = threading.Thread(target=pump, args=(child.stdout,), daemon=True)
    reader.start()
    threading.Thread(target=end_with_input, args=(child, leave_s), daemon=True).start()
    status = child.wait()
    reader.join(OUTPUT_S)
    return status


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.stdin.buffer.readline() or b"{}")
    if not wanted:
        return  # the owner died first
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    detach()
    scratch = ""
    try:
        folder = make_folder(wanted["parents"], wanted["files"])
    except OSError as error:
        return say("error", f"cannot make a folder for the certificates: {error}")
    try:
        say("folder", folder)
        if any("{scratch}" in word for word in wanted["command"]):
            scratch = make_folder(wanted["parents"][-1:], {})
            say("folder", scratch)
        names = (("{folder}", folder), ("{scratch}", scratch))
        command = [
            functools.reduce(lambda w, n: w.replace(*n), names, word) for word in wanted["command"]
        ]
        os.set_blocking(1, False)
        if command:
            status: object = run(command, wanted["leave_s"])
        else:
            status = 0
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
            sys.stdin.buffer.read()
    except OSError as error:
        return say("error", f"cannot run {wanted['command'][:1]}: {error}")
    finally:
        for each in filter(None, (folder, scratch)):
            shutil.rmtree(each, ignore_errors=True)
    os.set_blocking(1, True)
    say("exit", status)


if __name__ == "__main__":
    main()

"""A process that holds a folder of secrets, and runs a command that uses it, while its owner lives.

`gangway.ray` passes this file's text to `python -I -S -c`, also on hosts without this package, so
it imports the standard library only. Its first line of standard input is JSON:

    {"parents": [folders], "files": {name: base64}, "command": [words], "leave_s": seconds}

It makes a folder of mode 0700 in the first of `parents` that takes one, writes the files there
(mode 0600), and runs the command. There, {folder} stands for the folder, and {scratch} for another
one, in the last of `parents`, for what is large and not secret. It prints `folder PATH` for each,
then each line of the command's output as `line TEXT`, and at the end `exit STATUS`: then nothing is
left of any of it. If it cannot start, it prints `error REASON` instead. Lines end with \\n alone.

The owner ends it by another line on standard input, `end`. The end of standard input, which comes
when the owner has died in whatever way, does the same, and so does SIGTERM. Then the command gets
SIGTERM, and SIGKILL after `leave_s`. Without a command, the folder alone lasts until then.

This process leaves the owner's session and is not its child, so that it outlives the owner: Ray
kills the children of an actor that ends. If it is killed itself, the kernel ends the command by
SIGTERM, and the owner removes the folders. If both are killed, the next guard on this host removes
them: each holds a lock on a file in its folders, which the kernel releases when it dies.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from typing import IO, Any

LINE_BYTES_MAX = 4000  # below PIPE_BUF: a line is written whole or not at all
PREFIX = "gangway-ray-"  # of each folder's name
LOCK = ".guard"  # the file in each folder that its guard has locked
OUTPUT_S = 2  # for what a command has printed, and processes that it left behind hold open
PR_SET_PDEATHSIG = 1


def say(kind: str, text: object) -> None:
    """An owner that reads too slowly misses lines; one that is gone misses all."""
    line = f"{kind} {text}".replace("\n", " ").replace("\r", "\\r").encode(errors="replace")
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(1, line[:LINE_BYTES_MAX] + b"\n")


def detach() -> None:
    """Continues in a child of init, in a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)


def note_sigterm() -> int:
    """Returns a descriptor that can be read once this process has got SIGTERM."""
    noted, note = os.pipe()
    os.set_blocking(note, False)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return noted


def lock(folder: str) -> None:
    """Until this process dies. The file has its name only once it is locked, so that no other guard
    takes the folder for one that is left. Without locks in this file system, none is removed.
    """
    new = os.path.join(folder, LOCK + ".new")
    held = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return os.unlink(new)
    os.rename(new, os.path.join(folder, LOCK))


def is_left(folder: str) -> bool:
    """Whether it was made by a guard of this user that has died."""
    try:
        file = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if os.fstat(file).st_uid != os.geteuid():
            return False
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def sweep(parents: list[str]) -> None:
    """Removes the folders of guards that were killed together with their owners."""
    for parent in parents:
        with contextlib.suppress(OSError):
            for name in os.listdir(parent):
                folder = os.path.join(parent, name)
                if name.startswith(PREFIX) and is_left(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def make_folder(parents: list[str], files: dict[str, str]) -> str:
    """Raises OSError, with the reason of the last one, if no parent takes it."""
    problem: OSError = FileNotFoundError("no folder was named")
    for parent in parents:
        try:
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        except OSError as error:
            problem = error
            continue
        try:
            lock(folder)
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
    while line := output.readline(LINE_BYTES_MAX):
        say("line", line.decode(errors="replace").rstrip())


def await_end(sigterm: int) -> None:
    """Returns when the owner has asked for the end or has died, or this process has got SIGTERM."""
    select.select([0, sigterm], [], [])


def end_when_asked(child: subprocess.Popen[bytes], leave_s: float, sigterm: int) -> None:
    await_end(sigterm)
    child.terminate()
    late = threading.Timer(leave_s, child.kill)
    late.daemon = True
    late.start()


def run(command: list[str], leave_s: float, sigterm: int) -> int:
    """Runs the command to its end, or until it is asked for; returns its exit status."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_parent,  # this process has one thread
    )
    assert child.stdout
    reader = threading.Thread(target=pump, args=(child.stdout,), daemon=True)
    reader.start()
    threading.Thread(target=end_when_asked, args=(child, leave_s, sigterm), daemon=True).start()
    status = child.wait()
    reader.join(OUTPUT_S)
    return status


def main() -> None:
    # Without a buffer, so that `select` sees all that follows the first line.
    with open(0, "rb", buffering=0, closefd=False) as owner:
        wanted: dict[str, Any] = json.loads(owner.readline() or b"{}")
    if not wanted:
        return  # the owner died first
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    detach()
    sigterm = note_sigterm()
    sweep(wanted["parents"])
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
        status = 0
        if command:
            status = run(command, wanted["leave_s"], sigterm)
        else:
            await_end(sigterm)
    except OSError as error:
        return say("error", f"cannot run {wanted['command'][:1]}: {error}")
    finally:
        for each in filter(None, (folder, scratch)):
            shutil.rmtree(each, ignore_errors=True)
    os.set_blocking(1, True)
    say("exit", status)


if __name__ == "__main__":
    main()

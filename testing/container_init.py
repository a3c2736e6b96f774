"""Becomes a container's first process: container_init.py SPEC, in mount and process namespaces of its own.

SPEC is a JSON file: `root` (an empty folder), `binds` (from, to, whether read-only), `folders` to make, `user`,
`hostname`, `command` and `environment`. The container sees a root of its own with what is bound, and /proc and a few
devices; it runs as the user, in the user's group alone, and cannot gain privileges. Needs nothing but Python.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import signal
import socket
import sys

MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 32, 4096, 16384
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
PIVOT_ROOT = 155  # x86-64
DEVICES = ("null", "zero", "full", "random", "urandom")
NO_EXEC_STATUS = 127

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def mount(source: str, target: pathlib.Path, kind: str, flags: int, data: str = "") -> None:
    words = [source.encode(), str(target).encode(), kind.encode()]
    check(libc.mount(*words, ctypes.c_ulong(flags), data.encode()), f"mount {source} at {target}")


def bind(source: str, target: pathlib.Path, read_only: bool) -> None:
    if os.path.isdir(source):
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)


def make_root(spec: dict) -> None:
    root = pathlib.Path(spec["root"])
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=0755")
    for name in ("bin", "sbin", "lib", "lib64"):  # links into /usr
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(os.readlink(f"/{name}"))
    for source, target, read_only in spec["binds"]:
        bind(source, root / target.lstrip("/"), read_only)
    (root / "proc").mkdir()
    mount("proc", root / "proc", "proc", MS_NOSUID)
    for device in DEVICES:
        bind(f"/dev/{device}", root / "dev" / device, False)
    (root / "dev" / "shm").mkdir()
    mount(
        "tmpfs", root / "dev" / "shm", "tmpfs", MS_NOSUID, "mode=1777,size=64m"
    )  # as container runtimes do
    (root / ".old").mkdir()
    old = str(root / ".old").encode()
    check(libc.syscall(PIVOT_ROOT, str(root).encode(), old), "pivot_root")
    os.chdir("/")
    check(libc.umount2(b"/.old", MNT_DETACH), "umount /.old")
    os.rmdir("/.old")


def main() -> None:
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    socket.sethostname(spec["hostname"])
    make_root(spec)
    os.setgroups([spec["group"]])
    os.setresgid(spec["group"], spec["group"], spec["group"])
    os.setresuid(spec["user"], spec["user"], spec["user"])
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    # As `unshare --kill-child` has done; but a change of the user cancels it.
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    try:
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except OSError as error:
        print(f"cannot start {spec['command'][0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_EXEC_STATUS)


if __name__ == "__main__":
    main()

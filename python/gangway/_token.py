"""Finds what the cluster on this host keeps in its state folder for clients: the token, which its
front door requires because other users of the host can reach loopback, but cannot read the folder;
and the front door's socket.
"""

from __future__ import annotations

import os
import pathlib
import re
import socket
from typing import NamedTuple

SOCKET_PATH_MAX = 100  # of the 108 bytes that the kernel takes


def find_token(port: int) -> str:
    """`GANGWAY_TOKEN`, or the token file in the state folder of `gangway up`. Empty if neither
    exists: the front door then reports the missing token.
    """
    given = os.environ.get("GANGWAY_TOKEN", "")
    if given:
        return given
    return find_in_folder(port, "token")


def find_in_folder(port: int, name: str) -> str:
    """The text of a file in the cluster's folder; empty if this process cannot read it."""
    try:
        return (_folder(port) / name).read_text().strip()
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return ""


class FrontDoorSocket(NamedTuple):
    path: str
    bound: str  # the path as its listener wrote it, which `getpeername` returns


def find_socket(port: int) -> FrontDoorSocket | None:
    """A unix socket at which the front door at `port` of this host listens, too: messages take less
    CPU than over loopback. None if none listens, or if its path means something else in a gRPC
    address.
    """
    try:
        path = str(_folder(port) / "front_door.sock")
        if len(path.encode()) >= SOCKET_PATH_MAX or not re.fullmatch(r"/[\w ./+~@=-]*", path):
            return None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect(path)
            return FrontDoorSocket(path, probe.getpeername())
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None


def _folder(port: int) -> pathlib.Path:
    root = os.environ.get("GANGWAY_STATE_DIR") or pathlib.Path.home() / ".gangway"
    return pathlib.Path(root).absolute() / str(port)

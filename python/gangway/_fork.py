"""Keeps a forked child out of its parent's session.

A child of `os.fork()` inherits the sockets of JAX's client, but none of its threads. The front door
cannot tell what the child sends from what the parent sends: compiled functions that the child
drops, for example when its interpreter ends, would be gone for the parent. So in the child, sockets
that lead nowhere take the place of those sockets. Writes to them succeed, because JAX's client may
wait for ever after an error.
"""

from __future__ import annotations

import ipaddress
import os
import socket

_ports: set[int] = set()
_paths: set[str] = set()


def keep_children_out(port: int, path: str) -> None:
    """Children of this process cannot reach the front door at `port`, and at the unix socket that
    is bound to `path` if it is not empty, over its connections.
    """
    if not _ports:
        os.register_at_fork(after_in_child=_cut)
    _ports.add(port)
    if path:
        _paths.add(path)


def front_door_sockets() -> list[int]:
    """The descriptors of this process's connections to front doors that keep_children_out knows."""
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no such folder on this system: as without this module
        return []
    return [each for each in descriptors if _leads_to_front_door(each)]


def _cut() -> None:
    descriptors = front_door_sockets()
    if not descriptors:
        return
    nowhere, unread = socket.socketpair()
    unread.detach()  # open until the child ends
    with nowhere:
        for descriptor in descriptors:
            os.dup2(nowhere.fileno(), descriptor, inheritable=False)


def _leads_to_front_door(descriptor: int) -> bool:
    try:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
            return False
        connection = socket.socket(fileno=descriptor)
    except OSError:  # closed since it was listed
        return False
    try:
        peer = connection.getpeername()
    except OSError:  # not connected
        return False
    finally:
        connection.detach()
    if not isinstance(peer, tuple):
        return peer in _paths
    if peer[1] not in _ports:
        return False
    address = ipaddress.ip_address(peer[0])
    mapped = getattr(address, "ipv4_mapped", None)  # gRPC's sockets speak IPv6, too
    return (mapped or address).is_loopback

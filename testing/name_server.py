"""A name server as Kubernetes has one, for the pods of testing/pods.py: name_server.py ADDRESS NAMES.

NAMES is a file of lines "ADDRESS NAME", read for each query. A name with the search suffix of the namespace is that
Service's; other names do not exist. Says "ready" when it listens, and ends when its standard input does.
"""

from __future__ import annotations

import pathlib
import select
import socket
import struct
import sys

SUFFIX = ".default.svc.cluster.local"
ADDRESS_QUERY, INTERNET = 1, 1
NO_ERROR, NO_SUCH_NAME = 0, 3
RESPONSE = 0x8580  # authoritative; recursion wanted and available
TTL_S = 5


def question(query: bytes) -> tuple[str, int, int]:
    """The name, the type of the record, and where the question ends."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii"))
        at += 1 + query[at]
    return ".".join(labels).lower(), struct.unpack_from("!H", query, at + 1)[0], at + 5


def reply(query: bytes, names: dict[str, str]) -> bytes:
    name, kind, end = question(query)
    address = names.get(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
    answer = b""
    if address and kind == ADDRESS_QUERY:
        answer = struct.pack("!HHHIH", 0xC00C, ADDRESS_QUERY, INTERNET, TTL_S, 4)
        answer += socket.inet_aton(address)
    flags = RESPONSE | (NO_ERROR if address else NO_SUCH_NAME)
    return query[:2] + struct.pack("!HHHHH", flags, 1, bool(answer), 0, 0) + query[12:end] + answer


def main() -> None:
    address, file = sys.argv[1], pathlib.Path(sys.argv[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            query, sender = server.recvfrom(512)
            lines = [line.split() for line in file.read_text().splitlines()]
            try:
                server.sendto(reply(query, {name: address for address, name in lines}), sender)
            except (IndexError, UnicodeDecodeError, struct.error):
                continue  # no query


if __name__ == "__main__":
    main()

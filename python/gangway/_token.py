"""Finds the cluster's token, which its front door requires from every client: other users of the
host can reach loopback, but cannot read the cluster's state folder.
"""

from __future__ import annotations

import os
import pathlib


def find_token(port: int) -> str:
    """`GANGWAY_TOKEN`, or the token file in the state folder of `gangway up`. Empty if neither
    exists: the front door then reports the missing token.
    """
    given = os.environ.get("GANGWAY_TOKEN", "")
    if given:
        return given
    root = os.environ.get("GANGWAY_STATE_DIR") or pathlib.Path.home() / ".gangway"
    try:
        return (pathlib.Path(root) / str(port) / "token").read_text().strip()
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return ""

"""Finds the cluster's token, which its front door asks every client for: another user of the host
reaches loopback too, but not the cluster's state folder.
"""

from __future__ import annotations

import os
import pathlib


def find_token(port: int) -> str:
    """`GANGWAY_TOKEN`, or the file that `gangway up` left in its state folder; empty if neither is
    there: the front door then says what is missing.
    """
    given = os.environ.get("GANGWAY_TOKEN", "")
    if given:
        return given
    root = os.environ.get("GANGWAY_STATE_DIR") or pathlib.Path.home() / ".gangway"
    try:
        return (pathlib.Path(root) / str(port) / "token").read_text().strip()
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return ""

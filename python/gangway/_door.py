"""Which door to a cluster a script takes: "pjrt", Gangway's plugin in the script's process, or
"ifrt", the cluster's front door by the proxy client in jaxlib.
"""

from __future__ import annotations

import importlib.metadata
import os
import re

from gangway import _plugin
from gangway._errors import GangwayError
from gangway._token import find_in_folder

DOORS = ("ifrt", "pjrt")
# The default on larger clusters is "ifrt": jaxlib's PJRT client pays for each shard of an array,
# its IFRT client for each array. docs/internals/pjrt-door.md has the measurement.
PJRT_DEVICES_MAX = 32
# Programs of newer clients are not readable for the CPU plugin behind the front door.
IFRT_JAXLIB_MAX = (0, 12)


def given_door(argument: str | None) -> str | None:
    """The argument, or GANGWAY_DOOR; None if neither is set.

    Raises:
      ValueError: it is not a door.
    """
    for name, door in (("door", argument), ("GANGWAY_DOOR", os.environ.get("GANGWAY_DOOR"))):
        if door:
            if door not in DOORS:
                raise ValueError(f"{name}={door!r} is not one of {', '.join(DOORS)}")
            return door
    return None


def default_door(port: int) -> str:
    """For the cluster at `port` of this host. "ifrt" where the plugin is not installed, or this
    process cannot read the cluster's folder, by which the plugin finds the cluster.
    """
    try:
        _plugin.library()
    except GangwayError:
        return "ifrt"
    if not find_in_folder(port, "control"):
        return "ifrt"
    small = int(find_in_folder(port, "devices") or 0) <= PJRT_DEVICES_MAX
    return "pjrt" if small or _jaxlib() > IFRT_JAXLIB_MAX else "ifrt"


def _jaxlib() -> tuple[int, ...]:
    try:
        version = importlib.metadata.version("jaxlib")
    except importlib.metadata.PackageNotFoundError:
        return IFRT_JAXLIB_MAX
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])

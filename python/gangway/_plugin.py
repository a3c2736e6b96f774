"""Registers the cluster with JAX as a PJRT plugin: libgangway_pjrt.so, which runs in this process
and speaks the cluster's own protocol.
"""

from __future__ import annotations

import os
import pathlib

from gangway import _callbacks, _constants, _dlpack, _layouts, _platform
from gangway._errors import GangwayError

NAME = "gangway"  # of JAX's backend
LIBRARY = "libgangway_pjrt.so"


def library() -> pathlib.Path:
    """`GANGWAY_PJRT_PLUGIN`, or the library beside this package, or that of the repository's build.

    Raises:
      GangwayError: there is none.
    """
    here = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("GANGWAY_PJRT_PLUGIN")
    places = [pathlib.Path(named)] if named else [here / LIBRARY, here.parents[1] / "bin" / LIBRARY]
    for place in places:
        if place.exists():
            return place
    raise GangwayError(
        f"the plugin {LIBRARY} is not at {' or '.join(map(str, places))}: build it (`make build`), "
        "or name it in GANGWAY_PJRT_PLUGIN"
    )


def register() -> None:
    """Tells JAX of the plugin, which finds the cluster by the environment, without connecting. JAX
    has no backends yet.
    """
    from jax._src import xla_bridge

    if NAME not in xla_bridge._backend_factories:
        path = library()
        # Else JAX warns on each start. docs/reference/pjrt.md says what the plugin lacks.
        trusted: set[str] = getattr(xla_bridge, "_nonexperimental_plugins", set())
        trusted.add(NAME)
        xla_bridge.register_plugin(NAME, library_path=str(path))
        _platform.install(NAME)
        _callbacks.install(path, NAME)
        _dlpack.install(NAME)
        _layouts.install(NAME, is_plugin=True)
        _constants.install()

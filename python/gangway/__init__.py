"""Use the devices of a Gangway cluster from JAX.

A script needs none of this: `gangway run script.py` runs it unmodified. A notebook, or a script
that chooses its cluster itself, calls `connect` before it uses JAX:

    import gangway
    gangway.connect(port=38600)

    import jax
    jax.devices()        # the cluster
"""

from gangway._backend import connect
from gangway._errors import (
    AlreadyInitializedError,
    GangwayError,
    NotAFrontDoorError,
    NothingListeningError,
    UnsupportedVersionError,
)
from gangway._front_door import DEFAULT_PORT, check_front_door, default_port
from gangway._program import ProgramCapture, program

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_PORT",
    "AlreadyInitializedError",
    "GangwayError",
    "NotAFrontDoorError",
    "NothingListeningError",
    "ProgramCapture",
    "UnsupportedVersionError",
    "__version__",
    "check_front_door",
    "connect",
    "default_port",
    "program",
]

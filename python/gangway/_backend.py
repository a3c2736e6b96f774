"""Registers the cluster with JAX, under the name `proxy`: the IFRT proxy client of stock jaxlib.

Importing this module does not import JAX, so that `gangway.run` can set JAX's environment first.
Not thread-safe: JAX creates its backends once per process.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from gangway import _constants, _layouts, _platform, _plugin
from gangway._client_threads import few_wakes
from gangway._door import IFRT_JAXLIB_MAX, default_door, given_door
from gangway._errors import AlreadyInitializedError, GangwayError, UnsupportedVersionError
from gangway._fork import keep_children_out
from gangway._front_door import check_front_door, default_port
from gangway._token import find_socket, find_token
from gangway._watch import watch

if TYPE_CHECKING:
    import jax

IN_USE = (
    "JAX is already in use, with devices other than this cluster's, and cannot change them: call "
    "gangway.connect() before the first JAX operation (in a notebook, restart the kernel first)"
)
OLDEST_JAXLIB = (0, 8, 0)
# By door.
NEWEST_TESTED_JAXLIB = {"ifrt": IFRT_JAXLIB_MAX, "pjrt": (0, 12)}
# jaxlib's client retries after any error until this time has passed. check_front_door has already
# found the front door, which answers the first try within `gangway up --session-wait`, so retries
# would only hide its answer.
CONNECT_TIMEOUT_S = 1


def target(port: int, host: str = "127.0.0.1") -> str:
    return f"grpc://{host}:{port}"


def environment(port: int, *, local_cpu: bool = True) -> dict[str, str]:
    """The variables that make a new process's JAX use the cluster at `port` (with
    `jax_plugins.gangway`).
    """
    return {
        "GANGWAY_DOOR": "ifrt",
        "GANGWAY_PORT": str(port),
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",  # the client does not support TLS
        "JAX_BACKEND_TARGET": target(port),
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # this client cannot serialize; the cluster caches
        "JAX_PLATFORMS": "proxy,cpu" if local_cpu else "proxy",
    }


def check_jaxlib(version: str, door: str) -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if found < OLDEST_JAXLIB:
        oldest = ".".join(map(str, OLDEST_JAXLIB))
        raise UnsupportedVersionError(
            f"jaxlib {version} is too old for Gangway, which serves {oldest} and later: "
            "`pip install -U jax jaxlib`"
        )
    if found[:2] > NEWEST_TESTED_JAXLIB[door]:
        newest = ".".join(map(str, NEWEST_TESTED_JAXLIB[door]))
        warnings.warn(
            f"jaxlib {version} is newer than the versions that this Gangway was tested with: if it "
            f"fails, install {newest}",
            stacklevel=3,
        )


def make_client() -> Any:
    """Connects to `jax_backend_target`; JAX calls this when it first needs a device."""
    import jax
    import jaxlib.version
    from jax.extend.backend import ifrt_proxy

    os.environ.setdefault("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true")
    address: str = jax.config.read("jax_backend_target")  # type: ignore[no-untyped-call]
    match = re.fullmatch(r"grpc://(.+):(\d+)", address or "")
    if not match:
        raise GangwayError(
            f"JAX_BACKEND_TARGET={address!r} does not name a cluster: set it to "
            "grpc://127.0.0.1:PORT, or use `gangway run`, which does"
        )
    check_jaxlib(jaxlib.version.__version__, "ifrt")
    check_front_door(int(match[2]), match[1])
    options = ifrt_proxy.ClientConnectionOptions()
    options.connection_timeout_in_seconds = CONNECT_TIMEOUT_S
    options.initialization_data = {
        "client_name": os.path.basename(sys.argv[0] or "python").encode(),
        "client_pid": os.getpid(),
        "gangway_token": find_token(int(match[2])).encode(),
    }
    local = find_socket(int(match[2])) if match[1] == "127.0.0.1" else None
    if local:
        address = f"grpc://unix:{local.path}"
    with few_wakes():
        client = ifrt_proxy.get_client(address, options)
    keep_children_out(int(match[2]), local.bound if local else "")
    watch(int(match[2]), match[1], local.path if local else "")
    return client


def has_token() -> bool:
    """Whether `jax_backend_target` names a cluster whose token this process can read."""
    import jax

    address: str = jax.config.read("jax_backend_target")  # type: ignore[no-untyped-call]
    match = re.fullmatch(r"grpc://.+:(\d+)", address or "")
    return bool(match and find_token(int(match[1])))


def register() -> None:
    """Tells JAX how to make the `proxy` backend, without connecting."""
    from jax.extend import backend

    backend.register_backend_factory("proxy", make_client, priority=-1)
    _platform.install("proxy")
    _layouts.install("proxy", is_plugin=False)
    _constants.install()


def plugin_environment(
    place: int | str, tls: str | os.PathLike[str] | None = None, *, local_cpu: bool = True
) -> dict[str, str]:
    """The variables that make a new process's JAX use, through the plugin, the cluster at a port of
    this host or at a controller's address. GANGWAY_ADDRESS is not for the former.
    """
    named = "GANGWAY_ADDRESS" if isinstance(place, str) else "GANGWAY_PORT"
    return {
        "GANGWAY_DOOR": "pjrt",
        named: str(place),
        **({} if tls is None else {"GANGWAY_TLS": os.path.abspath(tls)}),
        "JAX_PLATFORMS": f"{_plugin.NAME},cpu" if local_cpu else _plugin.NAME,
    }


def _connect_plugin(
    place: int | str, tls: str | os.PathLike[str] | None, *, local_cpu: bool
) -> list[jax.Device]:
    import jax
    import jaxlib.version
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        if _plugin.NAME in xla_bridge.backends():
            return jax.devices(_plugin.NAME)
        raise AlreadyInitializedError(IN_USE)
    check_jaxlib(jaxlib.version.__version__, "pjrt")
    # The environment, so that child processes reach the cluster, too.
    os.environ.pop("GANGWAY_ADDRESS", None)
    variables = plugin_environment(place, tls, local_cpu=local_cpu)
    os.environ.update(variables)
    _plugin.register()
    jax.config.update("jax_platforms", variables["JAX_PLATFORMS"])  # type: ignore[no-untyped-call]
    try:
        return jax.devices()
    except RuntimeError as error:
        where = place if isinstance(place, str) else f"port {place}"
        raise GangwayError(f"the cluster at {where} is not reached: {error}") from error


def _choose_door(port: int) -> str:
    """That of the backend in use, or else the default for the cluster at `port`.

    Raises:
      NothingListeningError, NotAFrontDoorError: no cluster is there.
    """
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        return "pjrt" if _plugin.NAME in xla_bridge.backends() else "ifrt"
    check_front_door(port)
    return default_door(port)


def connect(
    port: int | str | None = None,
    *,
    tls: str | os.PathLike[str] | None = None,
    local_cpu: bool = True,
    door: str | None = None,
) -> list[jax.Device]:
    """Makes the cluster at `port` JAX's default backend and returns its devices.

    Args:
      port: the cluster's front door; `GANGWAY_PORT`, or 38600, if None. Or the address of a
        controller, such as "head.example:38601", which only the door "pjrt" reaches.
      tls: for such an address: a folder that `gangway certs` made; `GANGWAY_TLS`, if None.
      local_cpu: keep this process's own CPU reachable, as `jax.devices("host")`, and as
        `jax.devices("cpu")` unless the cluster's devices are CPUs.
      door: "pjrt", by Gangway's plugin in this process, or "ifrt", by the client in jaxlib.
        `GANGWAY_DOOR`, if None. Without that, "pjrt" for an address, for clusters of up to 32
        devices and for jaxlib 0.13 and newer, if the plugin is installed.

    Raises:
      AlreadyInitializedError: JAX already has backends other than this cluster's.
      NothingListeningError, NotAFrontDoorError: see the message.
      UnsupportedVersionError: this jaxlib is too old.
      GangwayError: the cluster refused the connection.
      ValueError: `door` or `GANGWAY_DOOR` is none of these, or cannot take an address.
    """
    import jax
    from jax._src import xla_bridge

    given = given_door(door)
    if isinstance(port, str) and not door:
        given = "pjrt"
    if port is None and given != "ifrt":
        port = os.environ.get("GANGWAY_ADDRESS")
    remote = isinstance(port, str) or tls is not None
    if remote and given == "ifrt":
        raise ValueError('an address and a TLS folder need door="pjrt"')
    port = default_port() if port is None else port
    if remote or (given or _choose_door(int(port))) == "pjrt":
        return _connect_plugin(port, tls, local_cpu=local_cpu)
    assert isinstance(port, int)
    if xla_bridge.backends_are_initialized():
        configured = jax.config.read("jax_backend_target")  # type: ignore[no-untyped-call]
        if "proxy" in xla_bridge.backends() and configured == target(port):
            return jax.devices("proxy")
        raise AlreadyInitializedError(IN_USE)
    check_front_door(port)
    variables = environment(port, local_cpu=local_cpu)
    os.environ.update(variables)
    for name, value in [
        ("jax_backend_target", variables["JAX_BACKEND_TARGET"]),
        ("jax_platforms", variables["JAX_PLATFORMS"]),
        ("jax_enable_compilation_cache", False),
    ]:
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    register()
    try:
        return jax.devices()
    except RuntimeError as error:
        cause = error.__context__ or error
        if isinstance(cause, GangwayError):
            raise cause from None
        raise GangwayError(
            f"the cluster at {target(port)} refused the connection: {cause}"
        ) from cause

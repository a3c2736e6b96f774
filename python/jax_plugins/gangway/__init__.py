"""Lets JAX discover Gangway: JAX imports every module in the namespace package `jax_plugins` when
it first needs a device, and calls its `initialize`.
"""

from gangway import _backend, _platform, _plugin


def initialize() -> None:
    """Registers the backends `proxy` and `gangway` (the plugin) if JAX_PLATFORMS requests them.

    A backend that another package (pathwaysutils) has registered is replaced only if the cluster's
    token is available: that backend presents no token, so the cluster would reject it. Without the
    request nothing is registered, because JAX would then try to connect in every process that can
    import this package.
    """
    import jax
    import jaxlib.version
    from jax._src import xla_bridge

    wanted = (jax.config.jax_platforms or "").split(",")  # type: ignore[attr-defined]
    if wanted[0] not in ("proxy", _plugin.NAME):
        _platform.warn_of_a_choice("JAX_PLATFORMS", ",".join(wanted))
    others = "proxy" in xla_bridge._backend_factories
    if "proxy" in wanted and (not others or _backend.has_token()):
        _backend.register()
    if _plugin.NAME in wanted:
        _backend.check_jaxlib(jaxlib.version.__version__, "pjrt")
        _plugin.register()

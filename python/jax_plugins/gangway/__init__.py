"""How JAX finds Gangway by itself: JAX imports every module in the namespace package `jax_plugins`
when it first needs a device, and calls its `initialize`.
"""

from gangway import _backend


def initialize() -> None:
    """Registers the `proxy` backend if this process asked for it (JAX_PLATFORMS), and nobody else
    has registered it or it is to reach a cluster whose token is at hand: what others register
    (pathwaysutils) presents none, and would be refused.

    Without that wish nothing may be registered: JAX would try to connect in every process that can
    import this.
    """
    import jax
    from jax._src import xla_bridge

    wanted = (jax.config.jax_platforms or "").split(",")  # type: ignore[attr-defined]
    others = "proxy" in xla_bridge._backend_factories
    if "proxy" in wanted and (not others or _backend.has_token()):
        _backend.register()

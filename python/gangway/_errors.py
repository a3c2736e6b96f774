"""The errors between a script and its cluster. Each message says what to do."""


class GangwayError(RuntimeError):
    """Base class of all errors that this package raises."""


class AlreadyInitializedError(GangwayError):
    """JAX has already made its backends, so its devices can no longer change."""


class NothingListeningError(GangwayError):
    """No process accepts connections on the port."""


class NotAFrontDoorError(GangwayError):
    """The process that listens on the port does not speak the protocol of Gangway's JAX front
    door.
    """


class UnsupportedVersionError(GangwayError):
    """This jaxlib cannot talk to Gangway."""

"""What can go wrong between a script and its cluster. Each message says what to do about it."""


class GangwayError(RuntimeError):
    """Base of everything that this package raises on purpose."""


class AlreadyInitializedError(GangwayError):
    """JAX has made its backends already, so that its devices cannot change any more."""


class NothingListeningError(GangwayError):
    """No process accepts connections on the port."""


class NotAFrontDoorError(GangwayError):
    """Something listens on the port, but it does not speak the protocol of Gangway's JAX front
    door.
    """


class UnsupportedVersionError(GangwayError):
    """This jaxlib cannot talk to Gangway."""

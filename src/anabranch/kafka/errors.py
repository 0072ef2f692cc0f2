"""The edge's own leaves of the error tree; here, apart from the client, so that naming them loads nothing."""

from anabranch.core.errors import BrokerUnreachable, PeerError

GIVEN_IN_PYTHON = "kafka={…}"
"""Where a setting of librdkafka was given, unless a command knows better."""


class UnreachableError(BrokerUnreachable):
    """No broker of the cluster answers."""


class FencedError(PeerError):
    """A static member's place was taken by another one of its name."""


class UndeliveredError(PeerError):
    """Some records were not acknowledged."""

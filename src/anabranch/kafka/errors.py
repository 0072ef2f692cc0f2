"""The edge's own leaves of the error tree; here, apart from the client, so that naming them loads nothing."""

from anabranch.core.errors import BrokerUnreachable, PeerError


class UnreachableError(BrokerUnreachable):
    """No broker of the cluster answers."""


class UndeliveredError(PeerError):
    """Some records were not acknowledged."""

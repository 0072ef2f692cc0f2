"""The one error that reading bytes of a peer may raise."""

from anabranch.core.errors import PeerError


class WireError(PeerError):
    """Bytes that are no valid Kafka message. Whatever the bytes are, reading them raises this or nothing."""

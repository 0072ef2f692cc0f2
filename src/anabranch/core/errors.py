"""The one tree of errors, in four branches by whose fault it is.

Being full, paused or empty are answers, not errors. Every message names the fix.
"""


class AnabranchError(Exception):
    """Any error that this project raises on purpose."""


class UsageError(AnabranchError):
    """The caller's: an option, an argument or a file that cannot be right."""


class PeerError(AnabranchError):
    """The other side's: a broker, a client or a cluster that broke the rules or cannot be reached."""


class HandlerError(AnabranchError):
    """The user's code's: a handler that raised, hung or returned what cannot be used."""


class InternalError(AnabranchError):
    """Ours: a rule of this project does not hold. Please report it."""


class Poison(HandlerError):
    """Raised by a handler: this record can never pass. It goes to the dead letters at once."""


class RetryAfter(HandlerError):
    """Raised by a handler: try this record again after so many seconds, whatever the retry policy says."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"try again after {seconds:g} s")
        self.seconds = seconds


class Fatal(HandlerError):
    """Raised by a handler: stop the pipeline. Nothing of this record is committed."""


class HandlerTimeout(HandlerError):
    """A call took longer than its step's `timeout_s` and was ended."""


class DecodeError(Poison):
    """A record that is not what the pipeline reads. It is poison: another attempt would find the same bytes."""


class Halted(AnabranchError):
    """The pipeline stopped by itself because going on would lose or reorder records; the message says why."""


class BrokerUnreachable(PeerError):
    """No broker answers."""

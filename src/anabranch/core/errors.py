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

"""An error of a member, told over the control channel and raised again by the driver: by name, from our own tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.core import errors
from anabranch.kafka.errors import FencedError, UndeliveredError, UnreachableError

if TYPE_CHECKING:
    from anabranch.spark.messages import Ended

_KNOWN: Final = {
    kind.__name__: kind
    for kind in (
        errors.UsageError,
        errors.PeerError,
        errors.HandlerError,
        errors.InternalError,
        errors.Halted,
        errors.BrokerUnreachable,
        FencedError,
        UndeliveredError,
        UnreachableError,
    )
}


class MemberTrace(Exception):
    """What was raised in a member, as Python printed it there: the cause of the driver's error."""


def error_of(ended: Ended) -> errors.AnabranchError | None:
    """Return the error that ended a member's run, if one did."""
    if not ended.error:
        return None
    error = _KNOWN.get(ended.error, errors.InternalError)(ended.sentence)
    if ended.trace:
        error.__cause__ = MemberTrace(f"\n{ended.trace}")
    return error

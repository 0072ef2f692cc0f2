"""How a run ended: an exit code, a sentence, and the error if there was one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from anabranch.core.errors import AnabranchError, BrokerUnreachable, Halted, HandlerError, PeerError, UsageError


class ExitCode(IntEnum):
    """What a process that did nothing but this run exits with."""

    DONE = 0
    INTERNAL = 1
    USAGE = 2
    UNREACHABLE = 3
    HALTED = 4
    DRAIN_INCOMPLETE = 5
    FORCED = 130


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run."""

    exit_code: int
    reason: str
    """A few words: done, stopped, halted…; the sentence is in `error`."""
    error: AnabranchError | None = None

    @staticmethod
    def of_error(error: AnabranchError) -> Result:
        """Return the result of a run that an error ended."""
        if isinstance(error, UsageError):
            return Result(ExitCode.USAGE, "refused", error)
        if isinstance(error, BrokerUnreachable):
            return Result(ExitCode.UNREACHABLE, "broker unreachable", error)
        if isinstance(error, Halted):
            return Result(ExitCode.HALTED, "halted", error)
        if isinstance(error, PeerError):  # fenced by another member of our name, refused by the cluster
            return Result(ExitCode.HALTED, "lost", error)
        if isinstance(error, HandlerError):
            return Result(ExitCode.HALTED, "failed", error)
        return Result(ExitCode.INTERNAL, "failed", error)


DONE = Result(ExitCode.DONE, "done")
STOPPED = Result(ExitCode.DONE, "stopped")
DRAIN_INCOMPLETE = Result(ExitCode.DRAIN_INCOMPLETE, "stopped before all that had begun was settled")
FORCED = Result(ExitCode.FORCED, "forced")

"""Decides about the members of a Spark run: who may begin, who is tried again, and when and how the run ends.

Spark places the members and starts a failed Spark task again at once; this machine says what is to become of each
attempt. A *place* is an index from 0 to members - 1, and so a static member of the group. A *term* is (job, attempt):
it rises with every start of a place, also when the whole job is started anew, so the larger of two is the newer.

Rules that hold here:

1. A member asks (`Joined`) before it joins the group. So when it is fenced, a newer attempt of ours has asked already;
   if none has, the place was taken by somebody else: another Spark run uses the group. Nothing is tried again then, or
   the two runs would take turns for ever.
2. Only what may pass by itself is tried again: a member that vanished, lost its lease, or found no broker although one
   had answered it before. What a handler, the pipeline or the cluster refuses ends the run, with its sentence.
3. A member that keeps dying without settling anything waits longer each time, and after `DEATHS_MAX` times the run
   ends: its first record kills it, and no number of attempts will help. The same holds for the whole job.
4. Once the run ends nobody begins: a late attempt is refused, lets its Spark task end well, and Spark's retries end.
5. The end waits for members that are alive, and for the job, both within limits.
6. A newer attempt begins when the lease of the older one is over, unless that one has told its end: the older one may
   live on behind a broken network, and begins calls for as long as it holds an answer.

Awkward: a member whose connection breaks is not gone; it comes back with its term within its lease, or a newer attempt
comes. Being silent therefore matters only in the end, where nobody waits for who cannot be heard.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import AnabranchError, BrokerUnreachable, Halted, PeerError
from anabranch.kafka.errors import FencedError
from anabranch.runtime.result import DONE, DRAIN_INCOMPLETE, FORCED, STOPPED, Result
from anabranch.spark.lease import DURATION_S
from anabranch.spark.supervision import (
    Admit,
    CancelJob,
    Dismiss,
    Ending,
    Finished,
    Heard,
    JobEnded,
    Joined,
    MemberEnded,
    Refuse,
    Silent,
    StartJob,
    StopMembers,
    Term,
    Tick,
)

if TYPE_CHECKING:
    from anabranch.spark.supervision import Effect, Event

DEATHS_MAX: Final = 10
BACKOFF_S: Final = 0.5
BACKOFF_S_MAX: Final = 10.0
STEADY_S: Final = 60.0
"""A member that lives for so long does not die again and again, also where there is nothing to settle."""
SILENT_S: Final = 5.0
"""Two leases and a report: who has not been heard for so long has stopped by itself."""
STORY_S: Final = 60.0
"""What a member's end may take beyond its drain: the last commit, leaving, flushing, the lifespan."""
TASKS_S: Final = 5.0
"""How long Spark may take to notice that all its tasks have ended, before the job is cancelled."""


class Phase(Enum):
    """Of a place."""

    ABSENT = "absent"
    ALIVE = "alive"
    SILENT = "silent"
    ENDED = "ended"


class _Place:
    """One member of the run, through all its attempts."""

    __slots__ = (
        "begins_at",
        "deaths",
        "has_joined",
        "heard_at",
        "is_fenced",
        "joined_at",
        "leased_until",
        "may_have_joined",
        "phase",
        "result",
        "settled",
        "term",
    )

    def __init__(self) -> None:
        self.term = Term(0, -1)
        self.phase = Phase.ABSENT
        self.heard_at = self.joined_at = self.begins_at = 0.0
        self.leased_until = float("-inf")
        """When the last lease ends that any attempt here can hold."""
        self.deaths = 0
        """Starts in a row that settled nothing."""
        self.settled = 0
        self.has_joined = False
        """It was a member of the group, in this attempt or an earlier one."""
        self.may_have_joined = False
        """It has asked to be one: a member that stops while the group still gathers has a place all the same."""
        self.is_fenced = False
        self.result: Result | None = None


class Supervisor:
    """The members of one run, as the driver knows them."""

    def __init__(self, group: str, members: int, *, drain_s: float) -> None:
        """Begin with nobody. `drain_s` is how long a stop may take unless it says otherwise."""
        self._group = group
        self._drain_s = drain_s
        self._places = [_Place() for _ in range(members)]
        self._job = 0
        self._job_runs = False
        self._job_failures = 0
        self._anyone_joined = False
        self._start_at: float | None = None
        self._result: Result | None = None
        self._stop_drain_s: float | None = None
        self._give_up_at = float("inf")
        self._cancel_at = float("inf")
        self._is_finished = False

    # ── what others may ask ──

    @property
    def is_ending(self) -> bool:
        """Tell whether nobody may begin any more."""
        return self._result is not None

    def freeable(self) -> list[int]:
        """Return the places that are ours to free: where we were. None once somebody else has taken one of them.

        Another run takes them all, and ours are told one after another: what looks like ours may be its own by now.
        """
        if any(place.is_fenced for place in self._places):
            return []
        return [index for index, place in enumerate(self._places) if place.may_have_joined]

    def next_deadline(self) -> float | None:
        """Return when to step again though nothing happens."""
        if self._is_finished:
            return None
        times = [self._give_up_at, self._cancel_at, *([] if self._start_at is None else [self._start_at])]
        if self._result is not None:
            times += [place.heard_at + SILENT_S for place in self._places if place.phase is Phase.ALIVE]
        earliest = min(times)
        return None if earliest == float("inf") else earliest

    def phases(self, now: float) -> list[str]:
        """Return how each place is, in words."""
        return [
            Phase.SILENT.value if place.phase is Phase.ALIVE and now - place.heard_at > SILENT_S else place.phase.value
            for place in self._places
        ]

    # ── deciding ──

    def start(self, now: float) -> list[Effect]:
        """Begin with the first job."""
        self._start_at = now
        return self.step(Tick(), now)

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take one event and answer what to do."""
        if self._is_finished:
            return self._after_the_end(event)
        effects = self._decide(event, now)
        effects += self._passing_of_time(now)
        if self._result is not None:
            effects += self._look_for_end(now)
        self.check_invariants()
        return effects

    def _decide(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Heard):
            return self._heard(event, now)
        if isinstance(event, Joined):
            return self._joined(event, now)
        if isinstance(event, MemberEnded):
            return self._member_ended(event, now)
        if isinstance(event, JobEnded):
            return self._job_ended(event, now)
        if isinstance(event, Ending):
            return self._end(event.result, event.drain_s, now)
        if isinstance(event, Silent):
            place = self._places[event.index]
            if place.term == event.term and place.phase is Phase.ALIVE:
                place.phase = Phase.SILENT
        return []

    def _after_the_end(self, event: Event) -> list[Effect]:
        if isinstance(event, Joined):
            return [Refuse(event.index, event.term, "the run has ended")]
        if isinstance(event, MemberEnded):
            return [Dismiss(event.index, event.term, again=False)]
        return []

    def _joined(self, event: Joined, now: float) -> list[Effect]:
        place = self._places[event.index]
        if event.term < place.term or event.term.job != self._job or not self._job_runs:
            return [Refuse(event.index, event.term, "a newer attempt of this member has started")]
        if event.term == place.term and place.phase is not Phase.ENDED:  # its connection had broken
            place.phase, place.heard_at = Phase.ALIVE, now
            again: list[Effect] = [] if self._result is None else [StopMembers(self._stop_drain_s)]
            return [Admit(event.index, max(0.0, place.begins_at - now)), *again]
        if self._result is not None:
            return [Refuse(event.index, event.term, "the run is ending")]
        place.deaths += 1
        if place.deaths > DEATHS_MAX:
            refused = Refuse(event.index, event.term, "it died too often")
            return [refused, *self._end(Result.of_error(self._dies_again_and_again(event.index)), 0.0, now)]
        place.term, place.phase, place.settled, place.result = event.term, Phase.ALIVE, 0, None
        place.heard_at = place.joined_at = now
        self._anyone_joined = True
        wait_s = max(0.0, _backoff_s(place.deaths - 1), place.leased_until - now)
        place.begins_at = now + wait_s
        return [Admit(event.index, wait_s)]

    def _dies_again_and_again(self, index: int) -> Halted:
        return Halted(
            f"member {index} of group {self._group} died {DEATHS_MAX} times without settling a record: something in "
            "its first records ends the Python process; look for a crash or a killed process in the executor's log"
        )

    def _heard(self, event: Heard, now: float) -> list[Effect]:
        place = self._places[event.index]
        if event.term != place.term or place.phase is Phase.ENDED:
            return []
        place.leased_until = now + DURATION_S  # it was answered, also when its job is over
        if not self._job_runs:
            return []
        place.phase, place.heard_at = Phase.ALIVE, now
        if event.statistics is not None:
            settled = int(event.statistics.get("settled", 0))
            if settled > place.settled or now - place.joined_at > STEADY_S:
                place.settled, place.deaths, self._job_failures = settled, 0, 0
            source = event.statistics.get("source", {})
            place.may_have_joined = place.may_have_joined or bool(source)
            place.has_joined = place.has_joined or source.get("rebalances", 0) > 0
        return []

    def _member_ended(self, event: MemberEnded, now: float) -> list[Effect]:
        place = self._places[event.index]
        if event.term != place.term:
            return [Dismiss(event.index, event.term, again=False)]  # superseded: fenced by its own successor
        place.phase, place.result, place.heard_at = Phase.ENDED, event.result, now
        place.leased_until = float("-inf")
        error = event.result.error
        if isinstance(error, FencedError):
            place.is_fenced = True
            error = self._taken_over()
        dismissed: list[Effect] = [Dismiss(event.index, event.term, again=False)]
        if self._result is not None:
            return [*dismissed, *self._replace_result(error)]
        if error is None or (isinstance(error, BrokerUnreachable) and place.has_joined):
            return [Dismiss(event.index, event.term, again=True)]
        return [*dismissed, *self._end(Result.of_error(error), 0.0, now)]

    def _taken_over(self) -> PeerError:
        return PeerError(
            f"another Spark run uses group {self._group}: it has taken the places of this one, which ends; "
            "run one at a time, or give the other pipeline another name"
        )

    def _replace_result(self, error: AnabranchError | None) -> list[Effect]:
        """Let an error that comes while the run ends without one be its result."""
        if error is not None and self._result is not None and self._result.error is None:
            self._result = Result.of_error(error)
        return []

    def _job_ended(self, event: JobEnded, now: float) -> list[Effect]:
        if event.job != self._job or not self._job_runs:
            return []
        self._job_runs = False
        if self._result is not None:
            return []
        for place in self._places:
            place.phase = Phase.ABSENT
        if event.is_final:
            error = PeerError(f"the Spark session of group {self._group} has ended under the run: {event.error}")
            return self._end(Result.of_error(error), 0.0, now)
        if event.error and not self._anyone_joined:
            halted = Halted(f"Spark could not start the members of group {self._group}: {event.error}")
            return self._end(Result.of_error(halted), 0.0, now)
        self._job_failures += 1
        if self._job_failures > DEATHS_MAX:
            halted = Halted(
                f"Spark gave up on the members of group {self._group} {DEATHS_MAX} times, and nothing was settled "
                f"in between: {event.error or 'its tasks ended by themselves'}"
            )
            return self._end(Result.of_error(halted), 0.0, now)
        self._start_at = now + _backoff_s(self._job_failures)
        return []

    # ── ending ──

    def _end(self, result: Result, drain_s: float | None, now: float) -> list[Effect]:
        if self._result is None:
            self._result = result
        elif result is FORCED:
            self._result = FORCED
        else:
            self._replace_result(result.error)
        self._start_at = None
        if result is FORCED:
            self._give_up_at = now
            return []
        self._stop_drain_s = drain_s
        patience_s = (self._drain_s if drain_s is None else drain_s) + STORY_S
        self._give_up_at = min(self._give_up_at, now + patience_s)
        return [StopMembers(drain_s)]

    def _passing_of_time(self, now: float) -> list[Effect]:
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._job += 1
            self._job_runs = True
            return [StartJob(self._job)]
        return []

    def _look_for_end(self, now: float) -> list[Effect]:
        """Wait for members that are alive, then for the job; both within limits."""
        if not self._job_runs:
            return self._finish()
        for place in self._places:
            if place.phase is Phase.ALIVE and now >= place.heard_at + SILENT_S:
                place.phase = Phase.SILENT
        if now >= self._give_up_at or now >= self._cancel_at:
            return [CancelJob(), *self._finish()]
        if all(place.phase is Phase.ABSENT for place in self._places):
            return [CancelJob(), *self._finish()]  # nobody has begun anything
        if any(place.phase is Phase.ALIVE for place in self._places):
            self._cancel_at = float("inf")  # one that was silent may be back
        elif self._cancel_at == float("inf"):
            self._cancel_at = now + TASKS_S
        return []

    def _finish(self) -> list[Effect]:
        assert self._result is not None
        self._is_finished = True
        result = self._result
        if result in {DONE, STOPPED} and not all(map(_ended_well, self._places)):
            result = DRAIN_INCOMPLETE
        return [Finished(result)]

    def check_invariants(self) -> None:
        """Assert what must hold between two steps."""
        alive = any(place.phase is Phase.ALIVE for place in self._places)
        assert self._job_runs or not alive or self._is_finished, "nobody lives without a job"
        assert self._start_at is None or not self._job_runs, "one job at a time"
        assert self._result is None or self._start_at is None, "no job is started when the run ends"
        assert self._result is None or self._is_finished or self.next_deadline() is not None, "the end has a limit"


def _ended_well(place: _Place) -> bool:
    """Tell whether what a member had begun came to its end; a place where nobody was has begun nothing."""
    if place.phase is Phase.ABSENT:
        return True
    return place.result is not None and place.result.exit_code == 0


def _backoff_s(failures: int) -> float:
    """Return how long to wait before the next start: not at all before the first."""
    return 0.0 if failures <= 0 else min(BACKOFF_S_MAX, BACKOFF_S * 2.0 ** (failures - 1))

"""The members of a run as the driver sees them: the supervisor's decisions, carried out.

Lives on the loop of the run. What members say becomes events of the supervisor, its effects become messages, jobs and
cancellations; one timer is armed for its next deadline. Nothing here waits: calls into the JVM are made on other
threads, because the answers to the members' reports, and so their leases, come from this loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import Halted
from anabranch.runtime.result import FORCED, Result
from anabranch.spark.apart import call_apart, tell_problem
from anabranch.spark.channel import Channel
from anabranch.spark.lanes_job import LanesJob
from anabranch.spark.messages import Dismissed, Refused, Stop, Terminate, Welcome
from anabranch.spark.remote_error import error_of
from anabranch.spark.statistics import MemberAccounts
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
    Tick,
)
from anabranch.spark.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from anabranch.spark.channel import MemberConnection
    from anabranch.spark.member import Orders
    from anabranch.spark.messages import Ended, Hello
    from anabranch.spark.supervision import Effect, Event

LOGGER: Final = logging.getLogger("anabranch.spark")
LATE_S: Final = 20.0
"""Members that have not come so long after the first job began are worth a sentence, again and again."""
LOOK_S: Final = 1.0


class Lanes:
    """All members of one run. Everything is called on the loop."""

    def __init__(self, spark: SparkSession, orders: Orders, members: int, *, drain_s: float) -> None:
        """Do nothing yet. The orders' address is filled in when the channel is open."""
        self._spark = spark
        self._orders = orders
        self._members = members
        self._loop = asyncio.get_running_loop()
        self._supervisor = Supervisor(orders.group, members, drain_s=drain_s)
        self._channel = Channel(orders.token, members, self)
        self._accounts = MemberAccounts(members)
        self._hellos: dict[int, Hello] = {}
        self._job: LanesJob | None = None
        self._jobs: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.Task[None] | None = None
        self._began_at = time.monotonic()
        self.finished: asyncio.Future[Result] = self._loop.create_future()
        """Resolved when no member is left."""

    async def start(self, bind: str, host: str) -> None:
        """Open the channel and have Spark start the members."""
        port = await self._channel.open(bind)
        self._orders = replace(self._orders, address=(host, port))
        self._began_at = time.monotonic()
        self._do(self._supervisor.start(time.monotonic()), None)
        self._arm()
        self._watch = self._loop.create_task(self._watch_starts())

    def end(self, result: Result, drain_s: float | None = None) -> None:
        """Have all members drain, commit and leave; the run has this result unless something worse happens."""
        self._step(Ending(result, drain_s))

    def terminate(self) -> None:
        """End now, whatever runs."""
        self._channel.send(Terminate())
        self._step(Ending(FORCED))

    async def close(self) -> None:
        """Hang up, when no member is left."""
        for pending in (self._timer, self._watch):
            if pending is not None:
                pending.cancel()
        self._channel.close()
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=1.0)

    def freeable(self) -> list[int]:
        """Return the places that are ours to free."""
        return self._supervisor.freeable()

    def statistics(self) -> dict[str, Any]:
        """Return the members' statistics as one, with what is known of each place."""
        phases = self._supervisor.phases(time.monotonic())
        present = [index for index, phase in enumerate(phases) if phase != "absent"]
        answer = self._accounts.merged(present)
        answer["members"] = {str(index): self._described(index, phase) for index, phase in enumerate(phases)}
        answer["why"] = [*self._absent_sentences(phases), *answer["why"]]
        return answer

    # ── what the channel calls ──

    def on_hello(self, connection: MemberConnection, hello: Hello) -> None:
        """Ask the supervisor whether a member may begin."""
        self._step(Joined(connection.index, connection.term), connection)
        if self._channel.is_current(connection):
            self._hellos[hello.index] = hello

    def on_report(self, connection: MemberConnection, statistics: Mapping[str, Any] | None) -> None:
        """Keep what a member says about itself."""
        if statistics is not None:
            self._accounts.told(connection.index, connection.term, statistics)
        self._step(Heard(connection.index, connection.term, statistics), connection)

    def on_ended(self, connection: MemberConnection, ended: Ended) -> None:
        """Take how a member's run ended, and what it says about itself for the last time."""
        self.on_report(connection, ended.statistics)
        result = Result(ended.exit_code, ended.reason, error_of(ended))
        self._step(MemberEnded(connection.index, connection.term, result), connection)

    def on_gone(self, connection: MemberConnection) -> None:
        """Take notice that a connection has broken."""
        self._step(Silent(connection.index, connection.term), connection)

    # ── deciding and doing ──

    def _step(self, event: Event, connection: MemberConnection | None = None) -> None:
        now = time.monotonic()
        self._do(self._supervisor.step(event, now), connection)
        self._arm()

    def _do(self, effects: Sequence[Effect], connection: MemberConnection | None) -> None:
        for effect in effects:
            if isinstance(effect, StartJob):
                self._start_job(effect.job)
            elif isinstance(effect, Admit):
                assert connection is not None
                self._accounts.started(connection.index, connection.term)
                self._channel.admit(connection)
                connection.send(Welcome(effect.wait_s))
            elif isinstance(effect, Refuse):
                assert connection is not None
                connection.send(Refused(effect.sentence))
            elif isinstance(effect, Dismiss):
                assert connection is not None
                connection.send(Dismissed(again=effect.again))
            elif isinstance(effect, StopMembers):
                self._channel.send(Stop(effect.drain_s))
            elif isinstance(effect, CancelJob):
                self._cancel_job()
            elif isinstance(effect, Finished) and not self.finished.done():
                self.finished.set_result(effect.result)

    def _start_job(self, number: int) -> None:
        if number > 1:
            LOGGER.warning("Spark gave up on the members: they are started again (%d)", number)
        self._job = LanesJob(self._spark, replace(self._orders, job=number), self._members, self._job_ended)
        self._apart(self._job.start)

    def _cancel_job(self) -> None:
        if self._job is not None:
            self._apart(self._job.cancel)

    def _job_ended(self, number: int, error: str, is_final: bool) -> None:
        """Take the end of a job, on the job's own thread."""
        try:
            self._loop.call_soon_threadsafe(self._step, JobEnded(number, error, is_final))
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # else: the run has ended, and nobody waits for the job any more

    def _apart(self, function: Any) -> None:
        future = call_apart(function)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        future.add_done_callback(tell_problem)  # the job's error, or the limit of the end, decides what follows

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._supervisor.next_deadline()
        if deadline is not None:
            delay_s = max(0.001, deadline - time.monotonic())
            self._timer = self._loop.call_later(delay_s, self._step, Tick())

    async def _watch_starts(self) -> None:
        """Until every member has come, say now and then that some have not; end the run when none can start."""
        told_at = self._began_at
        while "absent" in (phases := self._supervisor.phases(time.monotonic())):
            await asyncio.sleep(LOOK_S)
            if set(phases) == {"absent"} and self._job is not None:
                failure = await call_apart(self._job.failure)
                if failure and not self._hellos:
                    reason = f"Spark could not start the members of group {self._orders.group}: {failure}"
                    self.end(Result.of_error(Halted(reason)), 0.0)
                    return
            if time.monotonic() - told_at > LATE_S:
                told_at = time.monotonic()
                for sentence in self._absent_sentences(self._supervisor.phases(told_at)):
                    LOGGER.warning("%s", sentence)

    # ── telling ──

    def _described(self, index: int, phase: str) -> dict[str, Any]:
        hello, last = self._hellos.get(index), self._accounts.last(index)
        return {
            "state": last.get("state", "starting") if phase == "alive" else phase,
            "pid": None if hello is None else hello.pid,
            "host": None if hello is None else hello.host,
            "attempt": None if hello is None else hello.attempt,
            "job": None if hello is None else hello.job,
            "starts": self._accounts.starts[index],
            "partitions": sorted(last.get("partitions", ())),
            "settled": last.get("settled", 0),
            "running": last.get("running", 0),
        }

    def _absent_sentences(self, phases: Sequence[str]) -> list[str]:
        absent = phases.count("absent")
        if not absent or self._supervisor.is_ending or time.monotonic() - self._began_at < LATE_S:
            return []
        sentence = (
            f"{absent} of {self._members} members have not started: Spark has no free slot for them, or cannot start "
            "Python there; lower members, or give the session more cores"
        )
        return [sentence]

"""One member of a group, from its opening to its end: the story of a run, told on the loop.

    opening ──▶ running ──▶ stopping ──▶ ended
       └───────────┴────────────┴── forced (terminate), failed (a fault of ours)

`ending` is resolved once with why the run ends: stopped, done (`until`), halted, the source failed, a fault of ours.
All that follows from it is in `_shut_down`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from anabranch.control.events import Lost, Stop, Tick
from anabranch.control.ownership import STOP_COMMIT_S
from anabranch.control.plane import Plane
from anabranch.core.errors import AnabranchError, Halted, HandlerError, InternalError
from anabranch.core.work import TopicPartition
from anabranch.kafka.admin import Admin
from anabranch.kafka.bounds import cluster_id
from anabranch.kafka.settings import COMMIT_TIMEOUT_S
from anabranch.kafka.sink import KafkaSink
from anabranch.kafka.source import KafkaSource
from anabranch.runtime.joint import Joint, Parts
from anabranch.runtime.result import DONE, DRAIN_INCOMPLETE, FORCED, STOPPED, Result
from anabranch.runtime.settings import ENGINES
from anabranch.runtime.statistics import opened, unopened
from anabranch.runtime.status import StatusSocket
from anabranch.runtime.until import ASK_S, LOOK_S, ask_committed, find_targets, unreached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from anabranch.control.policy import PlanePolicy
    from anabranch.core.work import Delivery
    from anabranch.kafka.source import SourceEvent
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.settings import RunSettings

LOGGER: Final = logging.getLogger("anabranch.run")
CANCEL_S: Final = 1.0
"""How long calls that were cancelled have to end before they are left behind."""
LAST_COMMIT_S: Final = STOP_COMMIT_S + COMMIT_TIMEOUT_S
"""How long after the drain the last commit may be refused, tried again, and awaited."""
LEAVE_S: Final = 10.0
"""How long leaving the group and flushing the producer may take, each."""
WAITING_EVERY_S: Final = 3.0
"""How often a start that waits for a broker says so."""
FORCED_S: Final = 0.5
"""The same when the end is forced, and for the user's lifespan then."""


class _EndedEarly(Exception):
    """No error: somebody stopped the run before it was open."""


class Member:
    """A run as its loop sees it. Apart from `statistics` after the end, everything is called on the loop."""

    def __init__(self, plan: Plan, settings: RunSettings) -> None:
        self._plan = plan
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[Result] = self._loop.create_future()
        self._drain_s = settings.drain_s
        self._story: asyncio.Task[Any] | None = None
        self._joint: Joint | None = None
        self._admin: Admin | None = None
        self._lifespan: AbstractAsyncContextManager[Any] | None = None
        self._status = StatusSocket(settings.state_dir, self.statistics)
        self._watch: asyncio.Task[None] | None = None
        self._began_at = time.monotonic()
        self._waiting_told_at = float("-inf")
        self.state = "starting"
        self.forced = False

    # ── what others may ask ──

    def stop(self, drain_s: float | None = None) -> None:
        """Begin to stop; what has begun may end within `drain_s`."""
        if drain_s is not None:
            self._drain_s = drain_s
        if self.state == "stopping" and self._joint is not None:
            self._joint.step(Stop(time.monotonic() + self._drain_s))  # brings the deadline forward, never back
        self._end(STOPPED)

    def crash(self, error: BaseException) -> None:
        """End because something was raised through the loop itself: SystemExit in a task of the user's own."""
        failure = HandlerError(
            f"{type(error).__name__} was raised in an asyncio task that the pipeline's code had started: "
            "catch it there, or raise it in the handler"
        )
        failure.__cause__ = error
        self._end(Result.of_error(failure))

    def terminate(self) -> None:
        """End now, whatever runs."""
        self.forced = True
        if self._story is not None:
            self._story.cancel()

    def statistics(self) -> dict[str, Any]:
        """Answer plain values: the plane's own at the top, those of engine, source and sink under their names."""
        answer = {**unopened(self._plan, self._settings), "state": self.state}
        answer["uptime_s"] = time.monotonic() - self._began_at
        if self._joint is not None:
            self._joint.step(Tick())  # the plane knows ages as of its last step only
            answer.update(opened(self._joint.parts))
        return answer

    async def run(self) -> Result:
        """Open, run and shut down; never raises."""
        self._story = asyncio.current_task()
        try:
            await self._open()
            self.state = "running"
            result = await self._shut_down(await self._ending)
        except asyncio.CancelledError:
            result = await self._abandon(FORCED)
        except _EndedEarly:
            result = await self._abandon(self._ending.result())
        except AnabranchError as error:
            result = await self._abandon(Result.of_error(error))
        except Exception as error:
            LOGGER.exception("the run ends because of a fault in anabranch itself")
            failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
            failure.__cause__ = error
            result = await self._abandon(Result.of_error(failure))
        self.state = "ended"
        return result

    # ── opening ──

    async def _open(self) -> None:
        """Open everything in the order in which it is needed; join the group last."""
        plan, settings = self._plan, self._settings
        cluster, targets = await self._unless_ended(self._apart(self._look_around))
        resources = await self._open_lifespan()
        if settings.serves_status:
            await self._status.open()
        joint = Joint(plan, settings, self._end)
        engine = ENGINES[settings.engine](
            plan,
            joint.on_completed,
            recorder=settings.recorder,
            member=settings.member,
            may_start=settings.may_start,
            cluster_id=cluster,
            fail=joint.fail,
        )
        plane = Plane(_policy(plan, settings), member=settings.member, reports_settled=settings.recorder.enabled)
        source = KafkaSource(plan.read, plan.name, settings.source, self._crossing(joint.on_source))
        sink = KafkaSink(settings.sink, self._crossing(joint.on_delivered))
        joint.parts = Parts(plane, engine, source, sink)
        engine.start(resources)
        sink.start()
        source.start()
        self._joint = joint
        if targets is not None:
            self._watch = self._loop.create_task(self._watch_targets(targets))

    def _look_around(self) -> tuple[str, dict[TopicPartition, int] | None]:
        """Find the cluster, and where the run shall end; blocks. The client is kept only if it is needed again."""
        source = self._settings.source
        admin = Admin(source.connection, reach_s=source.reach_s, waits=self._waits)
        if self._settings.until is None:
            return cluster_id(admin), None
        self._admin = admin
        return cluster_id(admin), find_targets(admin, self._plan.read, self._settings.until)

    def _waits(self) -> bool:
        """Say now and then that no broker answers yet; answer whether to wait on. Called on another thread."""
        if self.forced or self._ending.done():
            return False
        now = time.monotonic()
        if now >= self._waiting_told_at + WAITING_EVERY_S:
            self._waiting_told_at = now
            LOGGER.warning("waiting for the broker at %s", self._settings.source.bootstrap)
        return True

    async def _unless_ended(self, opening: Awaitable[Any]) -> Any:
        """Wait for something that opens; whoever stops the run before it is there does not wait for it."""
        task = asyncio.ensure_future(opening)
        try:
            await asyncio.wait([task, self._ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_open = task.done()
            if not is_open:
                task.cancel()
        if not is_open:
            raise _EndedEarly
        return task.result()

    async def _open_lifespan(self) -> Any:
        if self._plan.lifespan is None:
            return None
        try:
            lifespan = self._plan.lifespan()
            resources = await lifespan.__aenter__()
        except Exception as error:
            raise _lifespan_failed("open", error) from error
        self._lifespan = lifespan
        return resources

    def _crossing(self, take: Callable[[Any], None]) -> Callable[[Any], None]:
        """Give the function that hands batches of another thread to the loop."""

        def deliver(batch: Sequence[SourceEvent] | list[Delivery]) -> None:
            try:
                self._loop.call_soon_threadsafe(take, batch)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise  # else: the run has ended and left this thread behind; nobody waits for its news

        return deliver

    async def _apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what blocks on another thread."""
        return await self._loop.run_in_executor(None, function, *arguments)

    # ── running ──

    def _end(self, result: Result) -> None:
        """Say why the run ends. The first to say so counts, unless an error comes while it stops without one."""
        if not self._ending.done():
            self._ending.set_result(result)
        elif result.error is not None and self._ending.result().error is None:
            self._ending = self._loop.create_future()
            self._ending.set_result(result)
            if self._joint is not None and not self._joint.stopped.done():
                self._joint.stopped.set_result(False)

    async def _watch_targets(self, targets: dict[TopicPartition, int]) -> None:
        """End the run when the group has passed every target."""
        assert self._joint is not None
        try:
            while not self._ending.done():
                missing = unreached(targets, self._own_positions())
                if missing.isdisjoint(self._joint.assigned):
                    if not missing or not unreached(
                        {each: targets[each] for each in missing},
                        await self._apart(ask_committed, self._admin, self._plan.name),
                    ):
                        self._end(DONE)
                        return
                    await asyncio.sleep(ASK_S)
                else:
                    await asyncio.sleep(LOOK_S)
        except AnabranchError as error:
            self._end(Result.of_error(error))

    def _own_positions(self) -> dict[TopicPartition, int]:
        assert self._joint is not None
        partitions = self._joint.parts.plane.statistics().partitions
        return {TopicPartition(each.topic, each.partition): each.committable for each in partitions}

    # ── ending ──

    async def _shut_down(self, result: Result) -> Result:
        """End in order. Each step may rely on those before it."""
        assert self._joint is not None
        self.state = "stopping"
        joint, parts = self._joint, self._joint.parts
        LOGGER.info("ending: %s", result.reason)
        # 1. Nothing more is fetched, no partition is taken, and nobody watches for the end.
        if self._watch is not None:
            self._watch.cancel()
        joint.pause_all()
        parts.source.take_no_more()
        # 2. The plane begins no new record; what has begun ends or is cancelled at the deadline; the last commit is
        #    answered. A source that failed has nothing to commit to: then all is lost to us and only cancelled.
        complete = await self._drained(result)
        # 3. The engine has no calls left, or they are left behind.
        parts.engine.close()
        ended = await parts.engine.join(CANCEL_S)
        if not ended:
            LOGGER.warning("calls that could not be ended are left behind: %s", parts.engine.statistics())
        # 4. The source leaves the group: from here on nothing can be committed, and revokes are waved through. After an
        #    error a static place is kept: the others would be given the record that ended this run, and end, too.
        joint.leave()
        parts.source.close(leaves=self._ending.result().error is None)
        if not await self._apart(parts.source.join, LEAVE_S):
            LOGGER.warning("the group was not left within %g s: it notices when the session ends", LEAVE_S)
        # 5. The sink is flushed and closed.
        parts.sink.close()
        if not await self._apart(parts.sink.join, LEAVE_S):
            LOGGER.warning("outputs were not acknowledged within %g s: their records are repeated", LEAVE_S)
            parts.sink.terminate()
        # 6. The workers end, and the user's resources are closed when no call can use them any more.
        await self._end_workers(CANCEL_S if ended else 0)
        failure = await self._close_lifespan()
        # 7. Nobody can ask any more.
        await self._status.close()
        final = self._ending.result()
        if final.error is None and failure is not None:
            return Result.of_error(failure)
        if final.error is None and not (complete and ended):
            return DRAIN_INCOMPLETE
        return final

    async def _drained(self, result: Result) -> bool:
        """Have the plane stop; answer whether all that had begun came to its end."""
        assert self._joint is not None
        joint = self._joint
        complete = False
        if _may_commit(result):
            drain_s = self._drain_s if result.error is None else 0.0
            joint.step(Stop(time.monotonic() + drain_s))
            await asyncio.wait([joint.stopped], timeout=drain_s + LAST_COMMIT_S)
            complete = joint.stopped.done() and joint.stopped.result()
        if not _may_commit(self._ending.result()):
            joint.step(Lost(sorted(joint.assigned)))
        elif not await joint.commits_answered(COMMIT_TIMEOUT_S):
            LOGGER.warning("the last commit was not answered: what it covered is repeated")
            complete = False
        return complete

    async def _abandon(self, result: Result) -> Result:
        """End without order: forced, or something is not as it should be. Waits for little and commits nothing."""
        self.state = "stopping"
        if self._watch is not None:
            self._watch.cancel()
        if self._joint is not None:
            self._joint.leave()
            parts = self._joint.parts
            parts.engine.terminate()
            parts.source.close(leaves=False)
            parts.sink.terminate()
            await self._end_workers(FORCED_S)
            await self._apart(parts.source.join, FORCED_S)
        try:
            await asyncio.wait_for(self._close_lifespan(), FORCED_S)
        except TimeoutError:
            LOGGER.warning("the lifespan did not close within %g s", FORCED_S)
        await self._status.close()
        return result

    async def _end_workers(self, timeout_s: float) -> None:
        """End the engine's own coroutines; those whose handler does not end are left behind."""
        assert self._joint is not None
        engine = self._joint.parts.engine
        engine.terminate()
        handles = engine.handles()
        if handles:
            await asyncio.wait(handles, timeout=timeout_s)

    async def _close_lifespan(self) -> HandlerError | None:
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is None:
            return None
        try:
            await lifespan.__aexit__(None, None, None)
        except Exception as error:
            failure = _lifespan_failed("close", error)
            LOGGER.exception("%s", failure)
            failure.__cause__ = error
            return failure
        return None


def _lifespan_failed(verb: str, error: Exception) -> HandlerError:
    return HandlerError(f"the pipeline's lifespan did not {verb}: {type(error).__name__}: {error}; mend that function")


def _may_commit(result: Result) -> bool:
    """Tell whether what is settled may still be committed: not when the source or the plane has failed."""
    return result.error is None or isinstance(result.error, Halted | HandlerError)


def _policy(plan: Plan, settings: RunSettings) -> PlanePolicy:
    """Return what the plane is told.

    The inline engine runs one call at a time, so no more are begun. Members that run until an end wait for each other's
    commits, so these come soon.
    """
    policy = plan.policy
    if settings.engine == "inline":
        policy = replace(policy, steps=tuple(replace(step, concurrency=1) for step in policy.steps))
    if settings.until is not None:
        policy = replace(policy, commit=replace(policy.commit, interval_s=min(ASK_S, policy.commit.interval_s)))
    return policy

"""A run on Spark from its opening to its end, told on the driver's loop: the counterpart of `runtime.member`.

    opening ──▶ running ──▶ stopping ──▶ ended
       └───────────┴────────────┴── forced (terminate)

The lanes end first and say how (`Lanes.finished`); then their places in the group are freed, the queries catch up and
stop, and everything that was opened is closed in the reverse order.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import AnabranchError, InternalError, PeerError
from anabranch.core.work import TopicPartition
from anabranch.kafka.admin import Admin
from anabranch.kafka.bounds import log_bounds
from anabranch.kafka.leave import leave_group
from anabranch.kafka.owners import find_owners
from anabranch.runtime.result import DONE, FORCED, STOPPED, Result
from anabranch.runtime.statistics import unopened
from anabranch.runtime.status import StatusSocket
from anabranch.runtime.until import ASK_S, ask_committed, find_targets, unreached
from anabranch.spark.apart import call_apart, tell_problem
from anabranch.spark.lanes import Lanes
from anabranch.spark.member import Orders
from anabranch.spark.ownerless import Ownerless
from anabranch.spark.session import open_session
from anabranch.spark.shipping import ship
from anabranch.spark.state_lock import hold
from anabranch.spark.statistics import of_nobody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anabranch.pipeline.plan import Plan
    from anabranch.spark.queries import Queries
    from anabranch.spark.session import Session
    from anabranch.spark.settings import SparkSettings

LOGGER: Final = logging.getLogger("anabranch.spark")
LOOK_S: Final = 0.5
"""How often the queries are looked at."""
CATCH_UP_S: Final = 10.0
"""How long the queries have, when the lanes were stopped, to read what is in their topic."""
OWNERS_S: Final = 1.0
"""How often it is looked for partitions that nobody owns, while members have less than all."""
STARTING: Final = "Spark is still starting"
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Around:
    """What the cluster of brokers said at the start."""

    admin: Admin
    partitions: int
    targets: dict[TopicPartition, int] | None


class _EndedEarly(Exception):
    """No error: somebody stopped the run before it was open."""


class Driver:
    """A run as its loop sees it. Apart from `statistics` after the end, everything is called on the loop."""

    def __init__(self, plan: Plan, pipeline: Any, settings: SparkSettings) -> None:
        self._plan = plan
        self._pipeline = pipeline
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[Result] = self._loop.create_future()
        self._story: asyncio.Task[Any] | None = None
        self._open = AsyncExitStack()
        self._around: _Around | None = None
        self._session: Session | None = None
        self._handing_over = threading.Lock()
        self._is_abandoned = False
        self._is_stopped = False
        self._is_spark_starting = False
        self._lanes: Lanes | None = None
        self._queries: Queries | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._began_at = time.monotonic()
        self.state = "starting"
        self.forced = False

    # ── what others may ask ──

    def stop(self, drain_s: float | None = None) -> None:
        """Begin to stop; what has begun may end within `drain_s`."""
        self._is_stopped = True
        self._end(STOPPED, drain_s)

    def terminate(self) -> None:
        """End now, whatever runs."""
        self.forced = True
        if self._lanes is not None and not self._lanes.finished.done():
            self._lanes.terminate()
        elif self._story is not None:
            self._story.cancel()

    def statistics(self) -> dict[str, Any]:
        """Answer plain values, in the shape of a run in one process, with `members` and `queries` beside them."""
        answer = of_nobody(unopened(self._plan, self._settings.run), self._plan.name)
        if self._lanes is not None:
            answer.update(self._lanes.statistics())
        if self._queries is not None:
            answer["queries"] = self._queries.statistics()
        if self._is_spark_starting:
            answer["why"] = [STARTING, *answer.get("why", ())]
        answer.update(state=self.state, uptime_s=time.monotonic() - self._began_at)
        return answer

    async def run(self) -> Result:
        """Open, run and shut down; never raises."""
        self._story = asyncio.current_task()
        try:
            result = await self._lived()
        except asyncio.CancelledError:
            result = FORCED
        except AnabranchError as error:
            result = Result.of_error(error)
        except Exception as error:
            result = _fault(error)
        self.state = "stopping"
        result = await self._closed(result)
        self.state = "ended"
        return result

    # ── opening and running ──

    async def _lived(self) -> Result:
        try:
            await self._opened()
        except _EndedEarly:
            if self._is_spark_starting:
                LOGGER.info("ending: %s; it is closed when it is there", STARTING)
            return self._ending.result()
        if self._lanes is None:  # nothing is to be done before the run's end
            return await self._finish_queries(DONE)
        if not self._ending.done():
            self.state = "running"
        result = await asyncio.shield(self._lanes.finished)
        self.state = "stopping"
        LOGGER.info("ending: %s", result.reason)
        for watch in self._watches:
            watch.cancel()
        await self._apart(self._free_places)
        return await self._finish_queries(result)

    async def _opened(self) -> None:
        """Open everything in the order in which it is needed; each is closed again whatever happens."""
        plan, settings = self._plan, self._settings
        lock = hold(settings.run.state_dir)
        self._open.callback(lock.release)
        status = StatusSocket(settings.run.state_dir, self.statistics)
        self._open.push_async_callback(status.close)
        await status.open()
        around = self._around = await self._unless_ended(self._apart(self._look_around))
        if around.targets == {} and not plan.queries:
            return
        self._open.push_async_callback(self._apart, self._close_session)
        self._is_spark_starting = True
        session = await self._unless_ended(self._apart(self._open_session))
        self._is_spark_starting = False
        orders = Orders(
            group=plan.name,
            shipment=await self._apart(ship, self._pipeline, session),
            address=("", 0),
            token=settings.token,
            job=0,
            options=settings.member_options,
            recorder=settings.recorder,
            ends_by_itself=around.targets is not None,
        )
        await self._open_queries(session)
        if around.targets == {}:
            return
        self._lanes = Lanes(session.spark, orders, session.members, drain_s=settings.run.drain_s)
        self._open.push_async_callback(self._lanes.close)
        await self._lanes.start(*_addresses(session))
        self._watch(self._watch_targets(around))
        self._watch(self._watch_owners(around))
        self._watch(self._watch_queries())
        if self._ending.done():  # somebody stopped it just now
            self._lanes.end(self._ending.result())

    def _look_around(self) -> _Around:
        """Find the cluster, its partitions, and where the run shall end; blocks."""
        source, read, until = self._settings.run.source, self._plan.read, self._settings.run.until
        admin = Admin(source.connection, reach_s=source.reach_s, waits=self._waits)
        partitions = len(log_bounds(admin, read.topics, read.pattern))
        return _Around(admin, partitions, None if until is None else find_targets(admin, read, until))

    def _waits(self) -> bool:
        """Say that no broker answers yet; answer whether to wait on. Called on another thread, every second or so."""
        if self.forced or self._ending.done():
            return False
        LOGGER.warning("waiting for the broker at %s", self._settings.run.source.bootstrap)
        return True

    def _open_session(self) -> Session:
        """Make or take the session; blocks. One that comes too late for anyone to use is closed again."""
        assert self._around is not None
        settings = self._settings
        session = open_session(
            app=self._plan.name,
            state_dir=settings.run.state_dir,
            master=settings.master,
            members=settings.members,
            partitions=self._around.partitions,
            queries=len(self._plan.queries),
            conf=settings.conf,
            spark=settings.spark,
        )
        with self._handing_over:
            if self._is_abandoned:
                session.close()
            self._session = session
        return session

    def _close_session(self) -> None:
        """Close the session, or have it closed when it comes; blocks."""
        with self._handing_over:
            self._is_abandoned = True
            if self._session is not None:
                self._session.close()

    async def _open_queries(self, session: Session) -> None:
        if not self._plan.queries:
            return
        from anabranch.spark.queries import Queries

        run = self._settings.run
        self._queries = Queries(
            session.spark,
            self._plan,
            run.state_dir,
            run.source.bootstrap,
            run.source.extra,
            on_lost_to_retention=run.source.on_lost_to_retention,
            on_beyond_end=run.source.on_beyond_end,
        )
        self._open.push_async_callback(self._apart, self._queries.stop)
        await self._apart(self._queries.start)

    # ── watching ──

    def _end(self, result: Result, drain_s: float | None = None) -> None:
        """Say why the run ends. The first to say so counts; the lanes may know better."""
        if not self._ending.done():
            self._ending.set_result(result)
        self.state = "stopping" if self.state == "running" else self.state
        if self._lanes is not None:
            self._lanes.end(result, drain_s)
        if self._queries is not None and (self._lanes is None or self._lanes.finished.done()):
            call_apart(self._queries.stop).add_done_callback(tell_problem)  # they are on their way to the end

    def _watch(self, story: Any) -> None:
        self._watches.append(self._loop.create_task(self._watched(story)))

    async def _watched(self, story: Awaitable[None]) -> None:
        """Let a watch that fails end the run: without it nobody would notice what it watches for."""
        try:
            await story
        except AnabranchError as error:
            self._end(Result.of_error(error), 0.0)
        except Exception as error:
            self._end(_fault(error), 0.0)

    async def _watch_targets(self, around: _Around) -> None:
        """End the run when the group has committed every target. A broker that is away is asked again."""
        if around.targets is None:
            return
        missing = set(around.targets)
        while missing:
            await asyncio.sleep(ASK_S)
            try:
                missing = unreached(around.targets, await self._apart(ask_committed, around.admin, self._plan.name))
            except PeerError as error:
                LOGGER.debug("the commits of group %s are not known now: %s", self._plan.name, error)
        self._end(DONE)

    async def _watch_owners(self, around: _Around) -> None:
        """See that partitions that nobody owns are shared out again."""
        assert self._lanes is not None
        read, source = self._plan.read, self._settings.run.source
        ownerless = Ownerless(self._plan.name, grace_s=source.grace_s)
        while True:
            await asyncio.sleep(OWNERS_S)
            told = self._lanes.statistics()
            held = {_named(name) for name in told["partitions"]}
            if len(held) >= around.partitions:
                continue
            try:
                owners = await self._apart(find_owners, around.admin, self._plan.name, read.topics, read.pattern)
            except PeerError:
                continue  # members tell of a broker that does not answer
            index = ownerless.look(owners, held, len(told["members"]), time.monotonic())
            if index is not None:
                LOGGER.warning("partitions without an owner: member %d joins anew, so that they are shared out", index)
                await self._apart(self._free_place, index)

    async def _watch_queries(self) -> None:
        """End the run when a query has failed."""
        if self._queries is None:
            return
        while (error := await self._apart(self._queries.failed)) is None:
            await asyncio.sleep(LOOK_S)
        self._end(Result.of_error(error), 0.0)

    async def _unless_ended(self, opening: Awaitable[Any]) -> Any:
        """Wait for something that opens; whoever stops the run before it is there does not wait for it."""
        task = asyncio.ensure_future(opening)
        await asyncio.wait([task, self._ending], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            raise _EndedEarly
        return task.result()

    async def _apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what blocks on another thread, which does not keep the process from ending."""
        return await call_apart(function, *arguments)

    # ── ending ──

    def _free_places(self) -> None:
        """Free the members' places, so that the next run has their partitions at once; blocks."""
        assert self._lanes is not None
        for index in self._lanes.freeable():
            if not self._free_place(index):
                return

    def _free_place(self, index: int) -> bool:
        """Have the group forget a member; answer whether it has. Blocks."""
        group, connection = self._plan.name, self._settings.run.source.connection
        try:
            leave_group(connection, group, "", f"{group}-{index}")
        except PeerError as error:
            LOGGER.warning("%s; its partitions are given to others when the session has ended", error)
            return False
        return True

    async def _finish_queries(self, result: Result) -> Result:
        """Let the queries have what the lanes wrote, if all went well."""
        if self._queries is None or result.error is not None or result is FORCED:
            return result
        try:
            if result is not DONE:
                await self._apart(self._queries.stop, CATCH_UP_S)
                return result
            if self._is_stopped or not await self._apart(self._queries.run_to_end):
                await self._apart(self._queries.stop, CATCH_UP_S)
                return STOPPED
        except AnabranchError as error:
            return Result.of_error(error)
        return result

    async def _closed(self, result: Result) -> Result:
        for watch in self._watches:
            watch.cancel()
        try:
            await self._open.aclose()
        except asyncio.CancelledError:
            LOGGER.warning("closing was cut short")
        except Exception as error:  # a JVM that is gone, say: how the run ended is decided
            LOGGER.warning("closing: %s: %s", type(error).__name__, error)
        return result


def _named(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))


def _fault(error: Exception) -> Result:
    LOGGER.error("the run ends because of a fault in anabranch itself", exc_info=error)
    failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
    failure.__cause__ = error
    return Result.of_error(failure)


def _addresses(session: Session) -> tuple[str, str]:
    """Return where the control channel listens, and how members reach it."""
    context = session.spark.sparkContext
    if session.is_on_this_machine:
        return LOOPBACK, LOOPBACK
    conf = context.getConf()
    host = conf.get("spark.driver.host") or LOOPBACK
    return conf.get("spark.driver.bindAddress") or host, host

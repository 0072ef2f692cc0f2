"""A member: what runs in the Python worker of a Spark task, from its first step to its last.

1. It asks the kernel to die with its parent, connects to the driver and waits until it is let in.
2. It loads the pipeline and runs it as `engine="async"` does, as the static member `<group>-<index>`, with a lease that
   is looked at before each call begins.
3. It reports its statistics, and obeys: stop drains, terminate ends at once. When the lease is gone for good it drains
   and fails, and Spark starts it again. When a newer attempt has its place it begins nothing more, drains and ends.
4. It tells how its run ended. The driver says whether Spark shall try again: then the Spark task fails, and also when
   nobody has heard of the end; else it ends well. A process in which calls were left behind ends, so that no other
   Spark task is given it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import AnabranchError, InternalError, PeerError, UsageError
from anabranch.runtime.result import STOPPED, ExitCode, Result
from anabranch.runtime.run import start
from anabranch.runtime.until import ASK_S
from anabranch.spark.channel_client import ChannelClient
from anabranch.spark.lease import REPORT_S
from anabranch.spark.messages import Ended, Hello
from anabranch.spark.parent_death import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anabranch.core.history import Recorder
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.run import Run

LOGGER: Final = logging.getLogger("anabranch.spark.member")
LAPSE_S: Final = 2.0
"""How long a member whose lease has ended goes on trying to reach the driver, without beginning anything."""
DISMISS_S: Final = 5.0
"""How long a member that has ended waits for the driver to hear it."""
HEARTBEAT_S: Final = 0.5
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Orders:
    """What a member is told when it is sent to the cluster. Pickled by Spark, between processes of one run."""

    group: str
    shipment: Any
    """Where the pipeline is found: has `load()`."""
    address: tuple[str, int]
    token: str
    job: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `runtime.run.start`."""
    recorder: Callable[[str], Recorder] | None = None
    ends_by_itself: bool = False
    """The run has an end: commits come soon, because the driver waits for them."""


class MemberFailed(Exception):
    """Makes a Spark task fail, so that Spark starts it again."""


def run_member(orders: Orders, index: int, attempt: int) -> str:
    """Be a member until the run ends; return how that was. Raises MemberFailed when Spark shall try again."""
    die_with_parent()
    hello = Hello(orders.token, index, orders.job, attempt, os.getpid(), socket.gethostname())
    client = ChannelClient(orders.address, hello)
    client.open()
    try:
        return _Story(orders, index, client).tell()
    finally:
        client.close()


class _Story:
    def __init__(self, orders: Orders, index: int, client: ChannelClient) -> None:
        self._orders = orders
        self._name = f"{orders.group}-{index}"
        self._client = client
        self._parent = os.getppid()
        self._lapsed = False

    def tell(self) -> str:
        client = self._client
        if client.refused is not None:
            return f"refused: {client.refused.sentence}"
        if not self._waited():
            return self._end(STOPPED, None)
        live: Run | None = None
        try:
            live = self._start()
            result = self._watch(live)
        except AnabranchError as error:
            result = Result.of_error(error)
        except Exception as error:
            LOGGER.exception("the member failed")
            failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
            failure.__cause__ = error
            result = Result.of_error(failure)
        return self._end(result, live)

    def _waited(self) -> bool:
        """Wait as long as the driver wants; answer whether to begin."""
        assert self._client.welcome is not None
        until = time.monotonic() + self._client.welcome.wait_s
        while (left_s := until - time.monotonic()) > 0 and self._may_begin():
            self._client.wait(left_s)
        return self._may_begin()

    def _may_begin(self) -> bool:
        return self._client.stop_asked is None and self._client.refused is None

    def _start(self) -> Run:
        orders, name = self._orders, self._name
        options = dict(orders.options)
        kafka = _member_kafka(options.pop("kafka", None) or {}, name, options.get("session_timeout_s", 10.0))
        return start(
            _member_plan(_loaded(orders), ends_by_itself=orders.ends_by_itself),
            "async",
            kafka=kafka,
            member=name,
            may_start=self._client.may_start,
            recorder=None if orders.recorder is None else orders.recorder(name),
            serves_status=False,
            leave_static=True,  # else the others' last commits stand behind a rebalance that waits for this member
            **options,
        )

    def _watch(self, live: Run) -> Result:
        """Report, obey, and look after the lease until the run has ended."""
        client = self._client
        stop_told, refusal_told = None, False
        report_at, began_at = 0.0, time.monotonic()
        while not _joined(live):
            now = time.monotonic()
            if now >= report_at:
                report_at = now + REPORT_S
                client.tell(live.statistics())
            if client.stop_asked is not stop_told:
                stop_told = client.stop_asked
                live.stop(None if stop_told is None else stop_told.drain_s)
            if client.refused is not None:
                if not refusal_told:
                    refusal_told = True
                    LOGGER.warning("%s drains and ends: %s", self._name, client.refused.sentence)
                    live.stop()
            elif not self._lapsed and (reason := self._alone(now, began_at)):
                self._lapsed = True
                LOGGER.warning("%s: %s drains and ends", reason, self._name)
                live.stop()
        return live.result

    def _alone(self, now: float, began_at: float) -> str:
        """Say why this member belongs to nobody any more; nothing if it does."""
        if os.getppid() != self._parent:  # where the kernel does not end us with it; Spark starts a successor
            return "the Spark worker's parent process has ended"
        if now > max(self._client.lease.until, began_at) + LAPSE_S:
            return f"the driver has not answered for {LAPSE_S:g} s"
        return ""

    def _end(self, result: Result, live: Run | None) -> str:
        statistics = None if live is None else {**live.statistics(), "state": "ended"}
        is_alone = self._lapsed or self._client.refused is not None
        dismissed = self._client.end(_ended(result, statistics), 0.0 if is_alone else DISMISS_S)
        if result.exit_code in {ExitCode.DRAIN_INCOMPLETE, ExitCode.FORCED}:
            os._exit(1)  # calls may still run here; a newer attempt, if Spark makes one, is refused or waits for them
        if self._lapsed or dismissed is None or dismissed.again:
            raise MemberFailed(f"{self._name}: {result.reason}: {result.error or 'the driver did not answer'}")
        return result.reason


def _joined(live: Run) -> bool:
    try:
        return live.join(_LOOK_S)
    except AnabranchError:
        return True


def _loaded(orders: Orders) -> Any:
    try:
        return orders.shipment.load()
    except AnabranchError:
        raise
    except Exception as error:
        raise UsageError(
            f"the pipeline cannot be loaded on {socket.gethostname()}: {type(error).__name__}: {error}; "
            "install what it imports on every executor, or ship it with spark.addPyFile"
        ) from error


def _member_kafka(given: Mapping[str, Any], name: str, session_timeout_s: float) -> dict[str, Any]:
    """Return the user's librdkafka settings with our own.

    Members start at different moments, and who has joined first has all partitions until its next heartbeat.
    """
    if str(given.get("group.protocol", "classic")).lower() != "classic":
        return {**given, "group.instance.id": name}
    heartbeat_ms = int(min(HEARTBEAT_S, session_timeout_s / 3) * 1000)
    return {"heartbeat.interval.ms": heartbeat_ms, **given, "group.instance.id": name}


def _member_plan(pipeline: Any, *, ends_by_itself: bool) -> Plan:
    """Return what this process runs of a pipeline: the lanes; its DataFrame steps are the driver's."""
    plan: Plan = pipeline.plan().without_queries()
    if not ends_by_itself:
        return plan
    commit = replace(plan.policy.commit, interval_s=min(ASK_S, plan.policy.commit.interval_s))
    return replace(plan, policy=replace(plan.policy, commit=commit))


def _ended(result: Result, statistics: Mapping[str, Any] | None) -> Ended:
    error = result.error
    return Ended(
        exit_code=int(result.exit_code),
        reason=result.reason,
        error="" if error is None else type(error).__name__,
        sentence="" if error is None else str(error),
        trace=_trace(error),
        statistics=None if statistics is None else dict(statistics),
    )


def _trace(error: AnabranchError | None) -> str:
    """Return what the user's code had raised, as Python prints it."""
    cause = None if error is None or isinstance(error, PeerError) else error.__cause__
    return "" if cause is None else "".join(traceback.format_exception(cause))

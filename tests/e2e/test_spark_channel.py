"""The control channel over real sockets: members that come, break off and come back, and strangers."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from waiting import eventually

from anabranch.core.errors import PeerError
from anabranch.runtime.result import STOPPED
from anabranch.spark import channel as channel_module
from anabranch.spark import member as member_module
from anabranch.spark.channel import STRANGERS_MAX, Channel
from anabranch.spark.channel_client import ChannelClient
from anabranch.spark.lease import Lease
from anabranch.spark.messages import FIRST_LINE, Dismissed, Ended, Hello, Refused, Stop, Welcome, frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anabranch.spark.channel import MemberConnection

TOKEN = "the token of this run"


class Driver:
    """A driver that welcomes everyone, on a loop and thread of its own."""

    def __init__(self) -> None:
        self.admits = self.dismisses = True
        self.heard: list[tuple[str, int]] = []
        self.statistics: dict[int, Mapping[str, Any]] = {}
        self.connections: list[MemberConnection] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self.call(self._open)

    def on_hello(self, connection: MemberConnection, hello: Hello) -> None:
        self.heard.append(("hello", hello.index))
        self.connections.append(connection)
        if self.admits:
            self.channel.admit(connection)
        connection.send(Welcome())

    def on_report(self, connection: MemberConnection, statistics: Mapping[str, Any] | None) -> None:
        if statistics is not None:
            self.statistics[connection.index] = statistics

    def on_ended(self, connection: MemberConnection, ended: Ended) -> None:
        self.heard.append((ended.reason, connection.index))
        if self.dismisses:
            connection.send(Dismissed(again=True))

    def on_gone(self, connection: MemberConnection) -> None:
        self.heard.append(("gone", connection.index))

    def call(self, function: Any, *arguments: Any) -> Any:
        """Call something on the loop and wait for it."""

        async def called() -> Any:
            answer = function(*arguments)
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(10)

    async def _open(self) -> int:
        self.channel = Channel(TOKEN, 2, self)
        return await self.channel.open("127.0.0.1")

    def close(self) -> None:
        self.call(self.channel.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


def client(driver: Driver, index: int = 0, token: str = TOKEN, attempt: int = 0, **options: Any) -> ChannelClient:
    return ChannelClient(("127.0.0.1", driver.port), Hello(token, index, 1, attempt), **options)


def hung_up(connection: socket.socket) -> None:
    """Read until the other side has closed or reset the connection; a time-out of the socket fails the test."""
    with suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def test_a_member_is_welcomed_reports_and_holds_its_lease(driver: Driver) -> None:
    """Answers renew the lease for as long as the driver lives."""
    member = client(driver)
    member.open()
    assert member.welcome is not None
    eventually(member.may_start, "the first report is answered")
    member.tell({"settled": 3})
    eventually(lambda: driver.statistics.get(0) == {"settled": 3}, "the statistics have arrived")
    member.close()
    eventually(lambda: ("gone", 0) in driver.heard, "the driver notices")


def test_the_lease_ends_by_itself_when_the_driver_is_gone(driver: Driver) -> None:
    """No call may begin one lease after the last answered report."""
    member = client(driver, lease=Lease(0.3))
    member.open()
    eventually(member.may_start, "the first report is answered")
    driver.call(driver.channel.close)
    eventually(lambda: not member.may_start(), "the lease has ended")
    member.close()


def test_a_member_whose_connection_breaks_comes_back_and_keeps_its_lease(driver: Driver) -> None:
    """It says hello again, with the same term."""
    member = client(driver)
    member.open()
    driver.call(driver.connections[0].close)
    eventually(lambda: driver.heard.count(("hello", 0)) == 2, "it is back")
    member.tell({"settled": 4})
    eventually(lambda: driver.statistics.get(0) == {"settled": 4}, "it reports")
    assert member.may_start()
    member.close()


def test_a_member_is_told_to_stop_and_tells_how_it_ended(driver: Driver) -> None:
    """Orders go down, the end goes up, and its answer comes back."""
    member = client(driver, index=1)
    member.open()
    driver.call(driver.channel.send, Stop(2.5))
    eventually(lambda: member.stop_asked == Stop(2.5), "the order has arrived")
    assert member.end(Ended(0, "stopped"), 10) == Dismissed(again=True)
    assert ("stopped", 1) in driver.heard
    member.close()


def test_an_end_that_was_lost_with_its_connection_is_told_again(driver: Driver) -> None:
    """The driver may not wait for a member that has ended."""
    member = client(driver)
    member.open()
    driver.call(driver.connections[0].close)
    assert member.end(Ended(0, "stopped"), 10) is not None
    member.close()


def test_a_newer_attempt_takes_the_lease_of_the_older_one_which_does_not_come_back(driver: Driver) -> None:
    """The older one is told so, begins nothing more from that moment on, and is heard no more."""
    older = client(driver, lease=Lease(1000.0))
    older.open()
    eventually(older.may_start, "the first report is answered")
    newer = client(driver, attempt=1)
    newer.open()
    eventually(lambda: older.refused is not None, "it was told")
    assert not older.may_start()
    eventually(lambda: not older._thread.is_alive(), "it has hung up")
    eventually(newer.may_start, "the newer one holds the lease")
    assert driver.heard == [("hello", 0), ("hello", 0)]
    older.close()
    newer.close()


def test_who_was_not_admitted_reports_without_an_answer(driver: Driver) -> None:
    """An attempt that the driver has not given a place never holds a lease."""
    driver.admits = False
    member = client(driver)
    member.open()
    member.tell({"settled": 1})
    eventually(lambda: driver.statistics.get(0) == {"settled": 1}, "it was heard")
    driver.call(lambda: None)
    assert not member.may_start()
    member.close()


def test_a_member_whose_end_nobody_heard_fails_so_that_spark_tries_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the driver would wait for a member that Spark has counted as done."""
    monkeypatch.setattr(member_module, "DISMISS_S", 0.05)
    driver.dismisses = False
    member = client(driver)
    member.open()
    story = member_module._Story(member_module.Orders("billing", None, ("", 0), TOKEN, 1), 0, member)
    with pytest.raises(member_module.MemberFailed, match="billing-0"):
        story._end(STOPPED, None)
    member.close()


def test_a_member_that_is_superseded_while_it_waits_does_not_begin(driver: Driver) -> None:
    """Its pipeline is not even loaded."""
    older = client(driver)
    older.open()
    older.welcome = Welcome(1000.0)
    newer = client(driver, attempt=1)
    newer.open()
    story = member_module._Story(member_module.Orders("billing", None, ("", 0), TOKEN, 1), 0, older)
    assert not story._waited()
    older.close()
    newer.close()


@pytest.mark.parametrize(
    ("token", "index", "says"),
    [("another token", 0, "the token of this run was not given"), (TOKEN, 2, "there is no member 2 in this run of 2")],
)
def test_who_is_no_member_of_this_run_is_refused(driver: Driver, token: str, index: int, says: str) -> None:
    """A token of another run, or a place that does not exist."""
    stranger = client(driver, index=index, token=token)
    stranger.open()
    assert stranger.refused == Refused(says)
    assert driver.heard == []
    stranger.close()


def test_a_driver_that_is_not_there_is_an_error_that_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual reason on a cluster: executors cannot reach the address that the driver gave."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setattr("anabranch.spark.channel_client.REACH_S", 0.1)
        member = ChannelClient(nobody.getsockname(), Hello(TOKEN, 0, 1, 0))
        with pytest.raises(PeerError, match=r"set spark\.driver\.host"):
            member.open()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 100_000,
        FIRST_LINE + b"\xff\xff\xff\xff",
        FIRST_LINE + frame(Ended(0, "done")),
        FIRST_LINE + frame(Hello("", -1, 0, 0)),
    ],
)
def test_strangers_are_closed_and_change_nothing(driver: Driver, data: bytes) -> None:
    """Whatever comes in, the connection ends, nobody is told, and members go on."""
    member = client(driver)
    member.open()
    with socket.create_connection(("127.0.0.1", driver.port), 10) as stranger:
        stranger.settimeout(10)
        stranger.sendall(data)
        hung_up(stranger)
    eventually(member.may_start, "the member goes on")
    assert driver.heard == [("hello", 0)]
    member.close()


def test_who_says_nothing_is_closed_after_a_while(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection holds nothing for long."""
    monkeypatch.setattr(channel_module, "HELLO_S_MAX", 0.05)
    with socket.create_connection(("127.0.0.1", driver.port), 10) as stranger:
        stranger.settimeout(10)
        hung_up(stranger)


def test_there_may_be_only_so_many_strangers(driver: Driver) -> None:
    """The bound is reached, one more is closed at once, and a member still finds its way when they are gone."""
    silent = [socket.create_connection(("127.0.0.1", driver.port), 10) for _ in range(STRANGERS_MAX)]
    try:
        eventually(lambda: len(driver.channel._strangers) == STRANGERS_MAX, "all are in")
        with socket.create_connection(("127.0.0.1", driver.port), 10) as more:
            more.settimeout(10)
            hung_up(more)
    finally:
        for each in silent:
            each.close()
    member = client(driver)
    member.open()
    assert member.welcome is not None
    member.close()

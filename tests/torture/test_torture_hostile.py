"""Hostile clients (fault 20): what they send, or leave unread, costs them their connection and nobody else anything."""

import random
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from torture_batches import Ledger
from torture_broker import BrokerProcess
from torture_clients import SteadyMember, SteadyProducer, check_producer, read_back, wait_until
from torture_form import Torture
from torture_wire import Wire, fetch_request, frame

from anabranch.broker.wire.messages.metadata import MetadataRequest
from anabranch.core.history import NullRecorder

TOPIC = "orders"
PARTITIONS = 2
GROWTH_BYTES_MAX = 100 * 1024 * 1024
MEGABYTE = 1024 * 1024
SEND_S_MAX = 2.0
SILENCE_S_MAX = 5.0
"""What a client beside would call being served; asserted in the full form only."""

Attack = Callable[[random.Random], bytes]


def garbage(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 4000))


def half_frame(chance: random.Random) -> bytes:
    """A request that is cut short: of a believable size, or one just below what is taken."""
    length = chance.choice((100, 5000, MEGABYTE, 100 * MEGABYTE))
    return struct.pack(">ihhi", length, chance.choice((0, 1, 3)), 8, 1) + chance.randbytes(min(length // 2, 50_000))


def two_gigabytes(chance: random.Random) -> bytes:
    return struct.pack(">i", chance.choice((2**31 - 1, 2**31 - 2, 2**30))) + chance.randbytes(1000)


def negative_length(chance: random.Random) -> bytes:
    return struct.pack(">i", chance.choice((-1, -(2**31), 0))) + bytes(100)


def nested_arrays(chance: random.Random) -> bytes:
    """Real APIs with arrays that claim 2^31 entries, in both encodings of a length, on several levels."""
    key, version = chance.choice(((0, 8), (1, 11), (2, 5), (3, 8), (8, 7), (9, 5), (11, 5), (19, 4), (20, 3), (37, 1)))
    head = struct.pack(">hhih", key, version, 1, -1)
    fields = (b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\0\1a", b"\xff\xff", bytes(4), b"\xff\xff\xff\xff\x07")
    body = head + b"".join(chance.choice(fields) for _ in range(chance.randrange(1, 20)))
    return struct.pack(">i", len(body)) + body


def garbage_body(chance: random.Random) -> bytes:
    """A good header of every API and version, and then anything."""
    head = struct.pack(
        ">hhih", chance.randrange(-1, 70), chance.randrange(-1, 18), 1, chance.choice((-1, 0, 3, 30_000))
    )
    body = head + chance.randbytes(chance.randrange(300))
    return struct.pack(">i", len(body)) + body


def torn_request(chance: random.Random) -> bytes:
    """A good request with one byte changed."""
    good = bytearray(chance.choice((frame(MetadataRequest(topics=None)), frame(fetch_request(TOPIC, 0, 0, MEGABYTE)))))
    good[chance.randrange(4, len(good))] = chance.randrange(256)
    return bytes(good)


ATTACKS: tuple[Attack, ...] = (
    garbage,
    half_frame,
    two_gigabytes,
    negative_length,
    nested_arrays,
    garbage_body,
    torn_request,
)


class Hostile:
    """Sockets that stay open until the end, as long as the broker lets them."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self.sockets: list[socket.socket] = []

    def open(self) -> socket.socket:
        made = socket.create_connection(self._address, timeout=10)
        self.sockets.append(made)
        return made

    def send(self, data: bytes) -> int:
        """Send as much as is taken, on a new connection; answer how much that was."""
        made = self.open()
        made.settimeout(SEND_S_MAX)
        sent = 0
        try:
            while sent < len(data):
                sent += made.send(data[sent : sent + MEGABYTE])
        except (ConnectionError, TimeoutError):
            pass  # cut, or not read any more: both are good answers
        return sent

    def cut(self) -> int:
        """Count the connections that the broker has ended."""
        return sum(_is_cut(made) for made in self.sockets)

    def close(self) -> None:
        for made in self.sockets:
            made.close()


class Beside:
    """A well-behaved client that must notice nothing: it writes and reads all the time."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self._broker = broker
        self._topic = f"{TOPIC}-{name}"
        with Wire(broker.bootstrap) as wire:
            assert wire.create_topic(self._topic, PARTITIONS) == 0
        place = (broker.bootstrap, self._topic)
        self.problems: list[str] = []
        noted: dict[str, Any] = {"error_cb": lambda error: self.problems.append(str(error))}
        self.producer = SteadyProducer(*place, PARTITIONS, "steady", NullRecorder(), noted)
        self.member = SteadyMember(*place, f"beside-{name}", "steady", NullRecorder(), None, noted)

    def start(self) -> None:
        self.member.start()
        self.producer.start()
        self.wait_for(2000)

    def wait_for(self, records: int) -> None:
        """Wait until so many more records came through."""
        target = self.member.records + records
        wait_until(lambda: self.member.records >= target, "the client beside is served")

    def finish(self) -> int:
        """Check that all of it came through; answer how many records."""
        self.producer.finish()
        total = len(self.producer.acknowledged)
        wait_until(lambda: self.member.records >= total, "everything is read")
        self.member.finish()
        assert not self.problems, f"the client beside noticed: {self.problems[:5]}"
        assert not self.member.refused, f"the client beside noticed: {self.member.refused[:5]}"
        assert self.member.records == total
        with Wire(self._broker.bootstrap) as wire:
            ends = {partition: wire.log_end(self._topic, partition) for partition in range(PARTITIONS)}
        check_producer(self.producer, read_back(self._broker.bootstrap, self._topic, ends))
        return total

    def abandon(self) -> None:
        self.producer.abandon()
        self.member.abandon()


class Growth:
    """Watches the broker's memory: the most that it grew since the beginning."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._start = broker.resident_bytes()
        self.most = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ending.wait(0.02):
            self.most = max(self.most, self._broker.resident_bytes() - self._start)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


@contextmanager
def watched(broker: BrokerProcess, name: str) -> Iterator[tuple[Hostile, Beside, Growth]]:
    """Give attackers, and afterwards check the client beside them and the memory."""
    with ExitStack() as stack:
        beside = Beside(broker, name)
        beside.start()
        growth = Growth(broker)
        hostile = Hostile(broker.bootstrap)
        stack.callback(hostile.close)
        stack.callback(growth.end)
        stack.callback(beside.abandon)
        yield hostile, beside, growth


def conclude(torture: Torture, what: str, beside: Beside, growth: Growth) -> None:
    """Check that the client beside was served all the time, and the broker's memory."""
    records, silence_s = beside.finish(), beside.producer.silence_s_max
    growth.end()
    torture.say(
        f"{what}: the broker grew by {growth.most // MEGABYTE} MB; the client beside wrote and read {records} records, "
        f"no errors, {silence_s:.2f} s between two acknowledgements at most"
    )
    assert growth.most < GROWTH_BYTES_MAX, f"the broker grew by {growth.most / MEGABYTE:.0f} MB"
    assert not torture.full or silence_s < SILENCE_S_MAX, f"the client beside got no answer for {silence_s:.1f} s"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log", flush="os", log_level="warning") as broker:
        broker.start()
        yield broker
        assert "Traceback" not in broker.log_lines(), broker.log_lines()


def connections(torture: Torture, wanted: int) -> int:
    """Answer how many connections this process may open, if that is less than wanted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    granted = min(wanted, hard - 200) if hard != resource.RLIM_INFINITY else wanted
    if granted < wanted:
        torture.say(f"only {granted} connections instead of {wanted}: raise ulimit -n")
    return granted


def test_500_hostile_connections_cost_less_than_100_mb(torture: Torture, broker: BrokerProcess) -> None:
    """Garbage, half frames, lengths of 2 GB, arrays of 2^31 entries, then silence; a client beside notices nothing."""
    count = connections(torture, 500)
    with watched(broker, "garbage") as (hostile, beside, growth):
        for number in range(count):
            attack = ATTACKS[number % len(ATTACKS)]
            hostile.send(attack(torture.random))
        torture.say(f"{count} connections opened and misused, {hostile.cut()} of them cut; they sit")
        beside.wait_for(torture.pick(2000, 20_000))
        conclude(torture, f"{count} hostile connections", beside, growth)


def test_half_frames_of_many_megabytes_are_bounded(torture: Torture, broker: BrokerProcess) -> None:
    """Connections that send megabytes of requests that never end: the broker stops reading before its memory grows."""
    count = torture.pick(60, 200)
    with watched(broker, "half") as (hostile, beside, growth):
        head = struct.pack(">ihhi", 100 * MEGABYTE, 0, 8, 1)
        threads = [
            threading.Thread(target=hostile.send, args=(head + bytes(8 * MEGABYTE),), daemon=True) for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        beside.wait_for(1000)
        for thread in threads:
            thread.join()
        beside.wait_for(torture.pick(1000, 10_000))
        conclude(torture, f"{count} half requests of 8 MB each", beside, growth)


def test_clients_that_never_read_are_bounded(torture: Torture, broker: BrokerProcess) -> None:
    """Clients that ask for a large topic again and again and read none of it hold one answer each, not all of them."""
    ledger = Ledger(torture.random)
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("large", 1) == 0
        while ledger.ends["large", 0] < 60:
            assert ledger.produce(wire, "large", 0, 900_000) == 0
    count = torture.pick(8, 40)
    with watched(broker, "reading") as (hostile, beside, growth):
        pipelined = frame(fetch_request("large", 0, 0, 50 * MEGABYTE)) * 500
        for _ in range(count):
            hostile.send(pipelined)
        beside.wait_for(torture.pick(2000, 20_000))
        conclude(torture, f"{count} clients with 500 unread fetches each", beside, growth)


def test_1000_idle_connections_cost_little(torture: Torture, broker: BrokerProcess) -> None:
    """Connections that ask once, or never, and stay."""
    count = connections(torture, 1000)
    with watched(broker, "idle") as (hostile, beside, growth):
        for number in range(count):
            opened = hostile.open()
            if number % 2:
                opened.sendall(frame(MetadataRequest(topics=None)))
        beside.wait_for(torture.pick(2000, 20_000))
        assert hostile.cut() == 0, "idle connections were cut"
        conclude(torture, f"{count} idle connections", beside, growth)


def _is_cut(made: socket.socket) -> bool:
    made.setblocking(False)
    try:
        while made.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True

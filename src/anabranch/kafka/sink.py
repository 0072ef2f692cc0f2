"""Write outputs and dead letters until they are acknowledged.

A sending is one task's outputs, or its letter. It is reported once: when all of its parcels are acknowledged, or when
one of them is refused for good. Everything else is sent again, for ever, with the same bytes; the handler never runs
again for it. Memory is bounded by the gate: a task that waits here still counts as held.

`write` and `dead_letter` come from the loop's thread and hand parcels straight to the library: the shortest way;
acknowledgements are heard on a thread of their own and go to `deliver` in batches. A sending that cannot be handed over
waits here for that thread: because its topic is not known yet, or because the library's queue is full; who comes later
waits behind it. Order: control has one sending per lane under way, and the parcels of a sending are handed over in
order, so nothing of a lane overtakes. The idempotent producer keeps that through retries. When it declares itself
broken (fatal), another takes its place and is given what is not acknowledged, in the order in which it came.

Awkward: a broker refuses a *batch* that is larger than its topic allows, though each record in it may be small enough.
So what is refused for its size is sent once more alone, and only then believed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.core.errors import AnabranchError, InternalError, UsageError
from anabranch.core.work import Delivery
from anabranch.kafka.client import LIBRARY_LOGGER, LastError, translating
from anabranch.kafka.letters import letter
from anabranch.kafka.sending import TOO_LARGE, Sending
from anabranch.kafka.topics import SinkTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anabranch.control.effects import DeadLetter
    from anabranch.core.work import Task
    from anabranch.kafka.settings import SinkSettings

POLL_S: Final = 0.05
IDLE_S: Final = 0.5
BUSY_S: Final = 0.005
"""How long a poll waits while something is to be handed over."""
AGAIN_S: Final = 0.1
"""How long a parcel waits that came back with an error."""
REPORT_MAX: Final = 500
"""How many deliveries are handed over at once."""

_TOPIC_GONE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_PERMANENT: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "INVALID_TIMESTAMP",
        "_INVALID_ARG",
    }
)


_delivery: Final[Callable[[tuple[Task, None]], Delivery]] = partial(tuple.__new__, Delivery)  # a NamedTuple, quickly
_Ended = tuple[Sending, int, KafkaError]


class KafkaSink:
    """An idempotent producer with a thread that hears its acknowledgements."""

    def __init__(self, settings: SinkSettings, deliver: Callable[[list[Delivery]], None]) -> None:
        """Prepare; nothing is sent before `start`. `deliver` is called on the sink's thread."""
        self._settings = settings
        self._deliver = deliver
        self._lock = threading.Lock()
        """Held while parcels are handed to the library, so that they keep their order."""
        self._topics = SinkTopics(settings)
        self._last_error = LastError()
        self._producer = self._new_producer({})
        self._single: Producer | None = None
        self._open: dict[int, Sending] = {}
        self._order = 0
        self._backlog: deque[Sending] = deque()
        self._strangers: dict[str, list[Sending]] = {}
        """Sendings whose topic is not known yet."""
        self._done: list[Delivery] = []
        """Touched on the sink's thread only."""
        self._done_aside: deque[Delivery] = deque()
        """What is done without the library having reported it."""
        self._failed: deque[_Ended] = deque()
        self._again: list[tuple[float, Sending, int]] = []
        self._fatal = False
        self._closing = False
        self._terminated = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anabranch-sink", daemon=True)
        self._counts = dict.fromkeys(("letters", "ended", "resent", "refused", "replaced"), 0)
        self._sent = 0
        self._latency_s = 0.0
        """Of all that was acknowledged, from the library's own watch."""

    # From the loop's thread.

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, tasks: Iterable[Task]) -> None:
        """Send each task's outputs; never blocks."""
        with self._lock:
            # The way of most: one output, to a topic that is known, through a queue with room.
            opened, backlog, known, ended = self._open, self._backlog, self._topics.partitions, self._only_ended
            produce, order = self._producer.produce, self._order
            for task in tasks:
                order += 1
                outputs = task.outputs
                sending = Sending(task, order, outputs)
                if len(outputs) != 1 or backlog or outputs[0].topic not in known:
                    self._take(sending)
                    continue
                topic, key, value, headers, timestamp_ms = outputs[0]
                opened[order] = sending
                sending.next = 1
                try:
                    produce(
                        topic,
                        value,
                        key,
                        -1,
                        partial(ended, sending),
                        None,
                        timestamp_ms or 0,
                        headers if type(headers) is list else list(headers),
                    )
                except BufferError:
                    sending.next = 0
                    backlog.append(sending)
                except KafkaException as error:
                    self._failed.append((sending, 0, error.args[0]))
                except (TypeError, ValueError, OverflowError) as error:
                    self._refuse(sending, _unsendable(topic, error))
            self._sent += order - self._order
            self._order = order
        if not self._wake.is_set():
            self._wake.set()

    def dead_letter(self, effect: DeadLetter, group: str) -> None:
        """Send a task's record to the dead letters; never blocks."""
        topic = self._settings.dead_letter_topic
        if topic is None:
            raise UsageError('there is no topic for dead letters: name one with .dead_letters("topic")')
        with self._lock:
            self._order += 1
            self._counts["letters"] += 1
            # How many partitions there are is known when the letter goes out; until then it has number 1 of 1.
            parcel = letter(effect, group, topic, self._topics.partitions.get(topic, 1))
            self._take(Sending(effect.task, self._order, [parcel], effect))
        self._wake.set()

    def close(self) -> None:
        """Take no more, and end when everything is acknowledged; never blocks."""
        self._closing = True
        self._wake.set()

    def terminate(self) -> None:
        """End at once, whatever is not acknowledged."""
        self._terminated = True
        self._wake.set()

    def break_producer(self) -> None:
        """Have the producer replaced, as if it had declared itself broken: for tests, and for someone in need."""
        self._fatal = True

    def join(self, timeout_s: float) -> bool:
        """Wait until the sink has ended; answer whether it has, with everything acknowledged or refused."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._open

    def statistics(self) -> dict[str, Any]:
        """Answer plain values."""
        return {
            "tasks": self._sent,
            **self._counts,
            "latency_s": self._latency_s / max(1, self._counts["ended"]),
            "open": len(self._open),
            "backlog": len(self._backlog) + sum(len(each) for each in list(self._strangers.values())),
            "topics_created": list(self._topics.created),
            "unreachable": self._last_error.all_down,
            "last_error": self._topics.problem or self._last_error.reason,
        }

    # Handing parcels to the library; under the lock.

    def _take(self, sending: Sending) -> None:
        if not sending.left:
            self._done_aside.append(Delivery(sending.task, None))
            return
        self._open[sending.order] = sending
        if self._backlog or not self._hand(sending):
            self._backlog.append(sending)

    def _hand(self, sending: Sending) -> bool:
        """Hand over what the library has not been given; answer False when its queue is full."""
        known = self._topics.partitions
        for index in range(sending.next, len(sending.parcels)):
            parcel = sending.parcels[index]
            if parcel.topic not in known:
                self._strangers.setdefault(parcel.topic, []).append(sending)
                return True
            if not self._produce(self._producer, sending, index):
                return False
            sending.next = index + 1
        return True

    def _produce(self, producer: Producer, sending: Sending, index: int) -> bool:
        parcel = sending.parcels[index]
        try:
            producer.produce(
                parcel.topic,
                parcel.value,
                parcel.key,
                parcel.partition if sending.effect is not None else -1,
                partial(self._ended, sending, index),
                None,
                parcel.timestamp_ms or 0,
                list(parcel.headers) or None,
            )
        except BufferError:
            return False
        except KafkaException as error:
            self._failed.append((sending, index, error.args[0]))
        except (TypeError, ValueError, OverflowError) as error:
            self._refuse(sending, _unsendable(parcel.topic, error))
        return True

    # The sink's thread.

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            failure = InternalError(f"the sink failed: {error!r}; please report this")
            failure.__cause__ = error
            self._deliver([Delivery(sending.task, failure) for sending in list(self._open.values())])
            raise
        if self._terminated:
            self._producer.purge()

    def _work(self) -> None:
        self._find_topics([] if self._settings.topic is None else [self._settings.topic])
        while not self._terminated and not (self._closing and self._idle()):
            if self._strangers:
                self._find_topics(list(self._strangers))
            if self._backlog:
                self._work_off()
            self._listen()
            if self._failed:
                self._judge()
            if self._fatal:
                self._replace()
            if self._again:
                self._send_again()
            self._report()

    def _idle(self) -> bool:
        return not self._open and not self._done and not self._done_aside

    def _listen(self) -> None:
        if not self._open:
            self._wake.wait(IDLE_S)
            self._wake.clear()
            self._producer.poll(0)
            return
        single = self._single
        busy = self._backlog or self._strangers or self._again or (single is not None and len(single))
        self._producer.poll(BUSY_S if busy else POLL_S)
        if single is not None:
            single.poll(0)

    def _ended(self, sending: Sending, index: int, error: KafkaError | None, message: Message) -> None:
        """Hear what became of a parcel: called by the library while it is polled."""
        if error is not None:
            self._failed.append((sending, index, error))
            return
        if sending.left:
            sending.left -= 1
            if not sending.left:
                self._latency_s += message.latency() or 0.0
                del self._open[sending.order]
                self._done.append(Delivery(sending.task, None))

    def _only_ended(self, sending: Sending, error: KafkaError | None, message: Message) -> None:
        """Hear what became of a sending that is one parcel: the way of most."""
        if error is not None:
            self._failed.append((sending, 0, error))
        elif sending.left:
            sending.left = 0
            self._latency_s += message.latency() or 0.0
            del self._open[sending.order]
            self._done.append(_delivery((sending.task, None)))
            if len(self._done) >= REPORT_MAX:  # one poll may bring tens of thousands
                self._report()

    def _report(self) -> None:
        while self._done_aside:
            self._done.append(self._done_aside.popleft())
        if self._done:
            deliveries, self._done = self._done, []
            self._counts["ended"] += len(deliveries)
            self._last_error.all_down = False
            self._deliver(deliveries)

    def _judge(self) -> None:
        """Decide about parcels that came back."""
        now = time.monotonic()
        while self._failed:
            sending, index, error = self._failed.popleft()
            if not sending.left:
                continue
            name, topic = error.name(), sending.parcels[index].topic
            if error.fatal() or name == "_FATAL":
                self._fatal = True
                self._again.append((0.0, sending, index))
            elif name in TOO_LARGE and index not in (sending.alone or ()):
                sending.alone = {*(sending.alone or ()), index}
                self._again.append((0.0, sending, index))
            elif name in TOO_LARGE or name in _PERMANENT:
                self._refuse(sending, sending.refusal(index, error))
            else:
                if name in _TOPIC_GONE:
                    self._topics.forget(topic)
                self._again.append((now + AGAIN_S, sending, index))

    def _refuse(self, sending: Sending, error: AnabranchError) -> None:
        sending.left = 0
        self._open.pop(sending.order, None)
        self._counts["refused"] += 1
        self._done_aside.append(Delivery(sending.task, error))

    def _send_again(self) -> None:
        now = time.monotonic()
        due = sorted((each for each in self._again if each[0] <= now), key=_by_order)
        self._again = [each for each in self._again if each[0] > now]
        for at, (_, sending, index) in enumerate(due):
            topic = sending.parcels[index].topic
            if topic not in self._topics.partitions:
                refusal = self._topics.find(topic, sending.origin)
                if refusal is not None:
                    self._refuse(sending, refusal)
                    continue
                if topic not in self._topics.partitions:
                    self._again.append((now + AGAIN_S, sending, index))
                    continue
                sending.address(self._topics.partitions[topic])  # made again, perhaps with fewer partitions
            producer = self._alone() if index in (sending.alone or ()) else self._producer
            with self._lock:
                taken = self._produce(producer, sending, index)
            if not taken:
                self._again.extend((now + BUSY_S, *rest) for _, *rest in due[at:])  # type: ignore[misc] # two of three
                return
            self._counts["resent"] += 1

    def _work_off(self) -> None:
        """Hand over what waited for room in the library's queue."""
        with self._lock:
            backlog = self._backlog
            while backlog and self._hand(backlog[0]):
                backlog.popleft()

    def _find_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            waiting = self._strangers.get(topic, ())
            refusal = self._topics.find(topic, next((each.origin for each in waiting), None))
            if refusal is None and topic not in self._topics.partitions:
                continue
            with self._lock:
                waiting = self._strangers.pop(topic, ())
                for sending in waiting:
                    if refusal is not None:
                        self._refuse(sending, refusal)
                        continue
                    sending.address(self._topics.partitions[topic])
                    if self._backlog or not self._hand(sending):
                        self._backlog.append(sending)

    # Producers.

    def _new_producer(self, more: dict[str, Any]) -> Producer:
        config = {**self._settings.producer_config(), **more, "error_cb": self._on_error}
        with translating("setting up the producer", self._settings.connection):
            return Producer(config, logger=LIBRARY_LOGGER)

    def _alone(self) -> Producer:
        if self._single is None:
            self._single = self._new_producer({"batch.num.messages": 1})
        return self._single

    def _on_error(self, error: KafkaError) -> None:
        self._last_error(error)
        if error.fatal():
            self._fatal = True

    def _replace(self) -> None:
        """Put another producer in the place of a broken one, and give it what is not acknowledged, in order."""
        with self._lock:
            broken = self._producer
            broken.purge()
            while len(broken):
                broken.poll(BUSY_S)  # every parcel comes back, acknowledged or purged
            self._producer = self._new_producer({})
            while self._failed:
                sending, index, _ = self._failed.popleft()
                if sending.left:
                    self._again.append((0.0, sending, index))
            self._hand_again()  # before whoever writes next
            self._fatal = False
            self._counts["replaced"] += 1

    def _hand_again(self) -> None:
        """Hand over what came back, in order, up to the first that must wait; under the lock."""
        again, known = sorted(self._again, key=_by_order), self._topics.partitions
        taken = 0
        for due, sending, index in again:
            is_ready = due == 0.0 and sending.parcels[index].topic in known and index not in (sending.alone or ())
            if not is_ready or not self._produce(self._producer, sending, index):
                break
            taken += 1
        self._counts["resent"] += taken
        self._again = again[taken:]


def _by_order(waiting: tuple[float, Sending, int]) -> tuple[int, int]:
    _, sending, index = waiting
    return sending.order, index


def _unsendable(topic: str, error: Exception) -> UsageError:
    return UsageError(f"an output for topic {topic} cannot be sent: {error}")

"""A chat's backend as a pipeline: messages of many sessions in, replies out, in order within each session.

Four steps, and each waits for a service: ingest, understand, answer, deliver. The services are as services are. One
message in ten meets a failure that passes, the gateway of one session is away for a while, and some messages can never
be answered.

    anabranch broker                                 # in one terminal
    python examples/chat.py                          # in another one: send 50,000 messages
    cd examples && anabranch run chat:chat           # answer them on Spark; or: --engine async

`examples/demo.py` does all of this, and judges it.
"""

import asyncio
import os
import random
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from anabranch import Context, Pipeline, Poison, Retry

MESSAGES, REPLIES, DEAD = "messages", "replies", "chat.dead"
PARTITIONS = 4
SESSIONS = 500
STUCK = "session-007"
AWAY_S = float(os.environ.get("CHAT_AWAY_S", "12"))
FLAKY = 10
"""One message in so many meets a failure that passes."""
HOPELESS = 4_000
"""One message in so many can never be answered: it says nothing, divides by zero, or was cut off on its way."""
CUT_OFF = 2


@dataclass(frozen=True, slots=True)
class Message:
    """What is read."""

    session: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a message means."""

    message: Message
    intent: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What is written; these are also the columns of a table of replies."""

    session: str
    number: int
    intent: str
    text: str


class Services:
    """Clients of the services behind the steps; here they only wait, and fail."""

    def __init__(self) -> None:
        self._opened_at = time.monotonic()

    async def call(self, ctx: Context, message: Message | Reply, takes_s: float) -> None:
        """Wait for a service's answer, or for its failure."""
        await asyncio.sleep(takes_s)
        if message.session == STUCK and ctx.step == "deliver" and time.monotonic() - self._opened_at < AWAY_S:
            raise ConnectionError(f"the gateway of {STUCK} does not answer")
        if ctx.attempt <= failures(message.session, message.number, ctx.step):
            raise TimeoutError(f"503 from the service behind {ctx.step!r}")


def failures(session: str, number: int, step: str) -> int:
    """Say how often a message fails in a step before it passes: one in ten does, in one step, once or twice."""
    chance = zlib.crc32(f"{session}/{number}".encode())
    if chance % FLAKY or step != ("ingest", "understand", "answer", "deliver")[chance // 10 % 4]:
        return 0
    return 1 + chance // 40 % 2


@asynccontextmanager
async def open_services() -> AsyncIterator[Services]:
    """Open what the handlers share: once in each process."""
    yield Services()


async def ingest(message: Message, ctx: Context) -> Message:
    """Let in what says something."""
    await ctx.resources.call(ctx, message, 0.001)
    text = message.text.strip()
    if not text:
        raise Poison("the message says nothing")
    return replace(message, text=text)


async def understand(message: Message, ctx: Context) -> Question:
    """Find out what is wanted."""
    await ctx.resources.call(ctx, message, 0.003)
    for intent, pattern in PATTERNS.items():
        if found := pattern.fullmatch(message.text):
            return Question(message, intent, found.groups())
    return Question(message, "talk", ())


async def answer(question: Question, ctx: Context) -> Reply:
    """Work out what to say."""
    message = question.message
    await ctx.resources.call(ctx, message, 0.005)
    return Reply(message.session, message.number, question.intent, SAY[question.intent](*question.words))


async def deliver(reply: Reply, ctx: Context) -> Reply:
    """Hand the reply to the session's gateway."""
    await ctx.resources.call(ctx, reply, 0.002)
    return reply


PATTERNS = {
    "greet": re.compile(r"hello, my name is (\w+)"),
    "add": re.compile(r"what is (\d+) \+ (\d+)\?"),
    "divide": re.compile(r"what is (\d+) / (\d+)\?"),
    "shout": re.compile(r"shout (\w+)"),
}
SAY: dict[str, Callable[..., str]] = {
    "greet": lambda name: f"hello, {name}",
    "add": lambda first, second: str(int(first) + int(second)),
    "divide": lambda first, second: str(int(first) // int(second)),
    "shout": lambda word: f"{word.upper()}!",
    "talk": lambda: "tell me more",
}

patient = Retry(attempts=None, initial_s=0.05, max_s=1.0, age_s_max=120, poison=(ArithmeticError,))

chat = (
    Pipeline("chat")
    .read(MESSAGES, Message)
    .process(ingest, retry=patient)
    .process(understand, retry=patient)
    .process(answer, retry=patient)
    .process(deliver, retry=patient)
    .write(REPLIES)
    .dead_letters(DEAD)
    .lifespan(open_services)
)


# What people write


class Sample(NamedTuple):
    """A message as it is sent, and what must come of it."""

    session: str
    number: int
    """Counts the session's messages from 0 on."""
    value: bytes
    reply: str | None
    """None: nobody can answer it, so it belongs into the dead letters."""


def samples(count: int, sessions: int = SESSIONS, seed: int = 1) -> Iterator[Sample]:
    """Make messages of many sessions, mixed as they come; the same ones for the same seed."""
    chance = random.Random(seed)
    hopeless = chance.sample(range(count), min(count, max(3, count // HOPELESS)))
    kinds = {index: kind % 3 for kind, index in enumerate(hopeless)}
    numbers: Counter[str] = Counter()
    for index in range(count):
        session = f"session-{chance.randrange(sessions):03d}"
        number = numbers[session]
        numbers[session] += 1
        kind = kinds.get(index)
        text, reply = something(chance)
        if kind is not None:
            text = ("   ", "what is 7 / 0?", text)[kind]
        value = msgspec.json.encode(Message(session, number, text))
        yield Sample(session, number, value[:-7] if kind == CUT_OFF else value, reply if kind is None else None)


def something(chance: random.Random) -> tuple[str, str]:
    """Write one message's text, and the reply to it."""
    first, second = chance.randrange(900), chance.randrange(1, 30)
    name, word = chance.choice(("Ann", "Bob", "Eve")), chance.choice(("hooray", "help", "fire"))
    return chance.choice(
        (
            (f"hello, my name is {name}", f"hello, {name}"),
            (f"what is {first} + {second}?", f"{first + second}"),
            (f"what is {first} / {second}?", f"{first // second}"),
            (f"shout {word}", f"{word.upper()}!"),
            (f"it is {second} degrees here", "tell me more"),
        )
    )


def send(bootstrap: str, messages: Iterable[Sample], on_sent: Callable[[Sample, Any, Any], None] | None = None) -> None:
    """Send messages under their session's name and wait until all are acknowledged; `on_sent` hears of each."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    for sample in messages:

        def sent(error: Any, message: Any, sample: Sample = sample) -> None:
            if error is not None:
                raise ConnectionError(f"message {sample.number} of {sample.session} was not taken: {error}")
            if on_sent is not None:
                on_sent(sample, message.partition(), message.offset())

        while True:
            try:
                producer.produce(MESSAGES, sample.value, sample.session, on_delivery=sent)
                break
            except BufferError:  # enough are on their way
                producer.poll(0.01)
        producer.poll(0)
    if left := producer.flush(60):
        raise ConnectionError(f"{left} messages were not acknowledged within a minute")


def create_topics(bootstrap: str) -> None:
    """Create the topics of messages and replies, unless they are there; the dead letters' is made when it is needed."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for answered in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (MESSAGES, REPLIES)]).values():
        try:
            answered.result(10)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise


def main() -> int:
    """Send messages to a broker."""
    bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    create_topics(bootstrap)
    send(bootstrap, samples(50_000))
    print(f"sent 50,000 messages of {SESSIONS} sessions to topic {MESSAGES!r} at {bootstrap}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

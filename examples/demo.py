"""Answers 50,000 chat messages on Spark, with failures, a stuck session and hopeless messages; then judges the result.

    python examples/demo.py [--records N] [--members N] [--away-s SECONDS] [--keep FOLDER]

The pipeline is that of `chat.py`, with a Parquet table of the replies beside their topic; the Kafka is the embedded
broker. Members record a history; a plain client reads replies and dead letters back; Spark SQL reads the table. The
oracle and `chat_audit.py` compare all of it with what was sent. The last line is the verdict; the exit code is 0 if it
is ok.
"""

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import chat
from chat_audit import Audit, Found, Sent, audit_letters, audit_positions, audit_replies, audit_table, joined
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from anabranch import Broker
from anabranch.cli.run import Watch
from anabranch.cli.status_line import Display, LiveLine, PlainLines
from anabranch.core import history
from anabranch.core.errors import AnabranchError
from anabranch.runtime.signals import stopping
from anabranch.spark.session import make_session
from anabranch.testing.history import HistoryWriter, read_history
from anabranch.testing.oracle import Verdict, judge

READ_S_MAX = 60.0
WITNESSES = ("", "history", "topics", "table")
QUERY = """
    SELECT intent, count(*) AS replies, count(DISTINCT session) AS sessions, sum(length(text)) AS characters
    FROM replies GROUP BY intent ORDER BY intent
"""


class Demo:
    """One demonstration: its broker, its folder, and what is known of it so far."""

    def __init__(self, bootstrap: str, folder: Path, console: Console) -> None:
        self._bootstrap = bootstrap
        self._histories = folder / "history"
        self._state_dir = folder / "state"
        self._table = folder / "replies"
        self._console = console
        self._sent = Sent({})
        self._run = Audit("run")

    def produce(self, records: int) -> None:
        """Send the messages."""
        self._sent = produce(self._bootstrap, chat.samples(records), self._histories)

    def run(self, members: int) -> None:
        """Run the pipeline on Spark until all is answered, and show how it is doing."""
        pipeline = chat.chat.write_table(self._table)
        recorder = functools.partial(HistoryWriter, self._histories)
        place = {"bootstrap": self._bootstrap, "state_dir": self._state_dir}
        live = pipeline.start("spark", until="end", members=members, recorder=recorder, **place)
        with ExitStack() as stack:
            display: Display = PlainLines(sys.stdout)
            if sys.stdout.isatty():
                line = LiveLine(sys.stdout)
                stack.enter_context(line.above())
                display = line
            watch = Watch(live, display)
            stack.enter_context(stopping(watch))
            try:
                watch.until_ended()
            except AnabranchError as error:  # what came of it until then is judged all the same
                display.tell(f"{type(error).__name__}: {error}")
        result = live.result
        if result.reason.startswith(("stopped", "forced")):
            raise KeyboardInterrupt
        if result.reason != "done":
            self._run.note("unfinished", f"it ended with exit code {result.exit_code}: {result.reason}")

    def judge(self) -> Verdict:
        """Hear every witness, show what each of them says, and give the verdict."""
        topics, table = Audit("topics"), Audit("table")
        found = read_topic(self._bootstrap, chat.REPLIES)
        replies = audit_replies(self._sent, found, topics)
        dead = audit_letters(self._sent, read_topic(self._bootstrap, chat.DEAD), topics)
        audit_positions(self._sent, committed(self._bootstrap), topics)
        rows = self._rows()
        audit_table(replies, rows, table)
        told = judge(read_history(self._histories), records=len(self._sent.places), count_dead=True)
        self._console.print(_meanwhile(found))
        counted = [
            ("replies", told.records - told["lost"].count - (told.dead or 0), len(found), len(rows)),
            ("dead letters", told.dead, dead, ""),
        ]
        self._console.print(_table("witnesses", WITNESSES, [*counted, *_broken(told, topics, table)]))
        return joined(told, [topics, table, self._run], dead)

    def _rows(self) -> list[chat.Reply]:
        """Ask the table with SQL, show the answer; give all rows."""
        if not any(self._table.glob("*.parquet")):
            return []
        with make_session("demo", "local[2]", {}, self._state_dir) as spark:
            spark.read.parquet(str(self._table)).createOrReplaceTempView("replies")
            answer = spark.sql(QUERY)
            self._console.print(_table("SQL over the table", answer.columns, answer.collect()))
            rows = spark.sql("SELECT session, number, intent, text FROM replies").collect()
        return [chat.Reply(*row) for row in rows]


def produce(bootstrap: str, samples: Iterable[chat.Sample], histories: Path) -> Sent:
    """Send messages, and tell the history of it; return where each one is."""
    places: dict[tuple[int, int], chat.Sample] = {}
    events: list[history.Event] = []

    def sent(sample: chat.Sample, partition: int, offset: int) -> None:
        places[partition, offset] = sample
        events.append(history.Sent(chat.MESSAGES, partition, offset, sample.session.encode(), sample.number))

    chat.create_topics(bootstrap)
    chat.send(bootstrap, samples, sent)
    with HistoryWriter(histories, "sender") as writer:
        writer.record(events)
    return Sent(places)


def read_topic(bootstrap: str, topic: str) -> list[Found]:
    """Read a topic from its beginning to its end, with a client that knows nothing of pipelines."""
    consumer = _consumer(bootstrap, "demo-reader")
    found: list[Found] = []
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    unread, deadline = set(partitions), time.monotonic() + READ_S_MAX
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic!r} could not be read to its end within {READ_S_MAX:g} s")
        for message in consumer.consume(10_000, 0.2):
            if message.error() is not None:
                unread.discard(message.partition())  # its end
                continue
            headers, timestamp_ms = dict(message.headers() or ()), message.timestamp()[1]
            place = message.partition(), message.offset()
            found.append(Found(*place, message.key(), message.value(), headers, timestamp_ms))
    consumer.close()
    return found


def committed(bootstrap: str) -> dict[int, int]:
    """Ask what the group has committed, by partition."""
    consumer = _consumer(bootstrap, chat.chat.name)
    found = consumer.committed([TopicPartition(chat.MESSAGES, each) for each in range(chat.PARTITIONS)], timeout=10)
    consumer.close()
    return {each.partition: max(each.offset, 0) for each in found}


def _consumer(bootstrap: str, group: str) -> Any:
    settings = {"enable.auto.commit": False, "enable.partition.eof": True, "log_level": 2}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})


def _broken(told: Verdict, topics: Audit, table: Audit) -> Iterator[tuple[str, int, int, int | str]]:
    """Say how often each of them saw a rule broken."""
    for rule, checker in {"lost": "lost", "reordered": "reordered", "duplicates": "duplicated"}.items():
        yield rule, told[checker].count, topics.counts[rule], "" if rule == "reordered" else table.counts[rule]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column, value in zip(columns, rows[0] if rows else columns, strict=True):
        table.add_column(column, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    return table


def _meanwhile(replies: Sequence[Found]) -> str:
    """Say what came of the others while one session was stuck, by the times that the replies bear."""
    stuck = [each.timestamp_ms for each in replies if each.key == chat.STUCK.encode()]
    if not stuck:
        return f"no reply to {chat.STUCK}"
    before = sum(each.timestamp_ms < min(stuck) for each in replies)
    share = before / (len(replies) - len(stuck) or 1)
    return f"while {chat.STUCK} was stuck, {before:,} replies ({share:.0%} of the others) went out"


def main() -> int:
    """Run the demo and give its exit code."""
    options = _options()
    os.environ["CHAT_AWAY_S"] = str(options.away_s)  # members are processes of their own
    console = Console(highlight=False)
    started_at = time.monotonic()
    try:
        with _folder(options.keep) as folder, Broker() as broker:
            demo = Demo(broker.bootstrap, folder, console)
            demo.produce(options.records)
            console.print(f"{options.records:,} messages of {chat.SESSIONS} sessions sent to {broker.bootstrap}")
            console.print(f"starting Spark with {options.members} members, which takes a while; then they answer")
            demo.run(options.members)
            verdict = demo.judge()
    except KeyboardInterrupt:
        print("interrupted: Spark and the broker are stopped", file=sys.stderr)
        return 130
    except (AnabranchError, OSError) as error:
        print(f"the demo could not be carried out: {error}", file=sys.stderr)
        return 1
    console.print(f"{time.monotonic() - started_at:.0f} s in all")
    print(verdict.line() if verdict.ok else verdict.report())
    return 0 if verdict.ok else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000, help="how many messages to send (default 50,000)")
    parser.add_argument("--members", type=int, default=2, help="how many members share the work (default 2)")
    parser.add_argument("--away-s", type=float, default=chat.AWAY_S, help="how long one session is stuck (default 12)")
    parser.add_argument("--keep", help="keep history, table and Spark's log in this new folder")
    options = parser.parse_args()
    if options.records < 10:
        parser.error("--records must be at least 10")
    if options.keep is not None and Path(options.keep).exists():
        parser.error(f"--keep: {options.keep} exists already; name a new folder")
    return options


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as temporary:
        yield Path(temporary)


if __name__ == "__main__":
    sys.exit(main())

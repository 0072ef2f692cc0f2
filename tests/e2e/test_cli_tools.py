"""topics, groups, produce and consume as real commands against a real broker."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from anabranch import Broker

DEADLINE_S = 30.0  # only a hang reaches it

Run = "Callable[..., subprocess.CompletedProcess[bytes]]"


def environment_for(bootstrap: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    return {**others, "ANABRANCH_KAFKA_BOOTSTRAP": bootstrap, "PYTHONWARNINGS": "error"}


@pytest.fixture
def run(anabranch_broker: Broker, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run a command to its end, against the session's broker."""

    def call(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "anabranch", *words],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env=environment_for(anabranch_broker.bootstrap),
            timeout=DEADLINE_S,
        )

    return call


@contextmanager
def started(bootstrap: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the test; it is killed if the test fails, or if it hangs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_for(bootstrap),
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def values(done: subprocess.CompletedProcess[bytes]) -> list[bytes]:
    """Return the printed lines in the order of their text: partitions are read side by side."""
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_topic_is_created_listed_and_deleted(run: Run) -> None:
    """The life of a topic; what is not there afterwards is refused with exit code 2."""
    name = f"life-{secrets.token_hex(4)}"
    assert run("topics", "create", name, "-p", "3", "-c", "retention.ms=60000").stdout == f"created {name}\n".encode()
    listed = [json.loads(line) for line in run("topics", "ls", "--json").stdout.splitlines()]
    assert {"name": name, "partitions": 3, "replicas": 1} in listed
    assert run("topics", "delete", name).stdout == f"deleted {name}\n".encode()
    again = run("topics", "delete", name)
    assert again.returncode == 2
    assert again.stderr.startswith(f"anabranch: error: no topic '{name}'".encode())


def test_topics_are_listed_as_a_table(run: Run, anabranch_topic: str) -> None:
    """People read columns."""
    lines = run("topics", "ls").stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "PARTITIONS", "REPLICAS"]
    assert [anabranch_topic, "4", "1"] in [line.split() for line in lines]
    assert not any(line.startswith("__") for line in lines)


def test_a_topic_that_exists_is_not_created_again(run: Run, anabranch_topic: str) -> None:
    """The caller's mistake is exit code 2, and the line names the topic."""
    done = run("topics", "create", anabranch_topic)
    assert done.returncode == 2
    assert done.stderr.startswith(f"anabranch: error: creating topic {anabranch_topic}: ".encode())
    assert done.stderr.count(b"\n") == 1


def test_a_topic_without_a_count_gets_the_brokers_default(run: Run) -> None:
    """KIP-464: the broker fills in what is not said."""
    name = f"default-{secrets.token_hex(4)}"
    assert run("topics", "create", name).returncode == 0
    listed = [json.loads(line) for line in run("topics", "ls", "--json").stdout.splitlines()]
    assert {"name": name, "partitions": 4, "replicas": 1} in listed


def test_lines_become_records_and_lines_again(run: Run, anabranch_topic: str) -> None:
    """Keys are split off, order within a key is kept, everything is acknowledged and said so."""
    done = run("produce", anabranch_topic, "-K", ":", "-H", "trace=7", stdin=b"alice:1\nbob:2\nalice:3\nlast")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == f"anabranch: 4 records acknowledged by {anabranch_topic}\n".encode()
    lines = run("consume", anabranch_topic, "-e", "-f", r"%k=%s %h %K\n").stdout.splitlines()
    assert sorted(lines) == [b"=last trace=7 -1", b"alice=1 trace=7 5", b"alice=3 trace=7 5", b"bob=2 trace=7 3"]
    assert lines.index(b"alice=1 trace=7 5") < lines.index(b"alice=3 trace=7 5")


def test_every_codec_is_read_back(run: Run, anabranch_topic: str) -> None:
    """-z picks the compression; the reader need not know."""
    lines = [b"%05d-%s" % (number, b"x" * 50) for number in range(2000)]
    for partition, codec in enumerate(["gzip", "snappy", "lz4", "zstd"]):
        sent = run("produce", anabranch_topic, "-p", str(partition), "-z", codec, "-q", stdin=b"\n".join(lines))
        assert (sent.returncode, sent.stderr) == (0, b"")
    assert values(run("consume", anabranch_topic, "-e")) == sorted(lines * 4)


def test_json_copies_records_exactly(run: Run, anabranch_topic: str) -> None:
    """Bytes that are no text, nulls, double headers, partition and timestamp survive `consume | produce`."""
    line = {
        "key": {"base64": "/w=="},
        "value": None,
        "headers": [["a", "1"], ["a", None]],
        "partition": 3,
        "timestamp": 1700000000123,
    }
    first = run("produce", anabranch_topic, "--json", stdin=json.dumps(line).encode() + b'\n{"value": "text"}\n')
    assert first.returncode == 0, first.stderr
    copied = run("consume", anabranch_topic, "-e", "--json").stdout
    target = f"copy-{secrets.token_hex(4)}"
    run("topics", "create", target, "-p", "4")
    assert run("produce", target, "--json", stdin=copied).returncode == 0
    again = run("consume", target, "-e", "--json").stdout
    assert sorted(again.replace(target.encode(), b"T").splitlines()) == sorted(
        copied.replace(anabranch_topic.encode(), b"T").splitlines()
    )
    assert line | {"topic": anabranch_topic, "offset": 0} in [json.loads(each) for each in copied.splitlines()]


def test_an_empty_value_is_null_only_when_asked(run: Run, anabranch_topic: str) -> None:
    """A tombstone is not an empty text."""
    run("produce", anabranch_topic, "-K", ":", "-p", "0", stdin=b"a:\n")
    run("produce", anabranch_topic, "-K", ":", "-p", "0", "-Z", stdin=b"b:\n")
    assert run("consume", anabranch_topic, "-e", "-f", r"%k %S\n").stdout == b"a 0\nb -1\n"


def test_files_are_read_line_by_line(run: Run, anabranch_topic: str, tmp_path: Path) -> None:
    """Files and stdin can be mixed, and options may stand between them."""
    (tmp_path / "one").write_bytes(b"1\n2\n")
    (tmp_path / "two").write_bytes(b"4")
    assert run("produce", anabranch_topic, "one", "-p", "1", "-", "two", stdin=b"3\n").returncode == 0
    assert run("consume", anabranch_topic, "-e").stdout == b"1\n2\n3\n4\n"


def test_reading_begins_where_it_is_told(run: Run, anabranch_topic: str) -> None:
    """-o takes a word, an offset, a tail or a time."""
    everything = [b"0", b"1", b"2", b"3", b"4"]
    times = [1700000000000 + number for number in range(5)]
    lines = [json.dumps({"value": str(time % 10), "partition": 0, "timestamp": time}) for time in times]
    run("produce", anabranch_topic, "--json", stdin="\n".join(lines).encode())
    for start, expected in {
        "beginning": everything,
        "end": [],
        "3": everything[3:],
        "-2": everything[3:],
        "-99": everything,
        "@1700000000002": everything[2:],
        "@1800000000000": [],
        "@2023-11-14T22:13:20.004Z": everything[4:],
    }.items():
        assert values(run("consume", anabranch_topic, "-p", "0", "-e", "-o", start)) == expected, start


def test_a_start_outside_of_the_log_is_moved_to_its_edge_and_said(run: Run, anabranch_topic: str) -> None:
    """Nothing is skipped silently."""
    run("produce", anabranch_topic, "-p", "0", stdin=b"a\nb\n")
    done = run("consume", anabranch_topic, "-p", "0", "-e", "-o", "7")
    assert (done.returncode, done.stdout) == (0, b"")
    assert f"{anabranch_topic}/0: offset 7 is outside of 0 to 2; starting at 2".encode() in done.stderr


def test_a_count_ends_the_reading(run: Run, anabranch_topic: str) -> None:
    """-c prints exactly so many."""
    run("produce", anabranch_topic, "-p", "0", stdin=b"a\nb\nc\n")
    assert run("consume", anabranch_topic, "-c", "2").stdout == b"a\nb\n"


def test_a_group_goes_on_after_what_it_printed(run: Run, anabranch_topic: str) -> None:
    """Only printed records are committed: a count that cuts a batch does not lose the rest of it."""
    group = f"group-{secrets.token_hex(4)}"
    run("produce", anabranch_topic, "-p", "0", stdin=b"a\nb\nc\n")
    first = run("consume", anabranch_topic, "-g", group, "-c", "2")
    assert (first.returncode, first.stdout) == (0, b"a\nb\n"), first.stderr
    assert run("consume", anabranch_topic, "-g", group, "-e").stdout == b"c\n"
    assert run("consume", anabranch_topic, "-g", group, "-e").stdout == b""
    assert run("consume", anabranch_topic, "-g", group, "-e", "-o", "beginning").stdout == b"a\nb\nc\n"


def test_a_group_is_described_with_members_positions_and_lag(
    run: Run, anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """While a member reads, it is shown with its partitions; when it is gone, the positions stay."""
    group = f"group-{secrets.token_hex(4)}"
    run("produce", anabranch_topic, "-p", "1", stdin=b"a\nb\nc\n")
    with started(anabranch_broker.bootstrap, "consume", anabranch_topic, "-g", group, "-u", "-o", "1") as reader:
        assert reader.stdout is not None
        assert (reader.stdout.readline(), reader.stdout.readline()) == (b"b\n", b"c\n")
        shown = json.loads(run("groups", "describe", group, "--json").stdout)
        assert shown["state"] == "stable"
        (member,) = shown["members"]
        assert member["partitions"] == [[anabranch_topic, number] for number in range(4)]
        reader.send_signal(signal.SIGINT)
        assert reader.wait(DEADLINE_S) == 0
    run("produce", anabranch_topic, "-p", "1", stdin=b"d\ne\n")
    text = run("groups", "describe", group).stdout.decode()
    assert [anabranch_topic, "1", "3", "5", "2", "-"] in [line.split() for line in text.splitlines()]
    assert "state        empty" in text.splitlines()
    listed = [json.loads(line) for line in run("groups", "ls", "--json").stdout.splitlines()]
    assert {"name": group, "state": "empty", "protocol": "consumer"} in listed


def test_an_unknown_group_is_refused(run: Run) -> None:
    """The broker answers for any name; we say that there is none."""
    done = run("groups", "describe", "no-such-group")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"no group 'no-such-group'" in done.stderr


def test_an_unknown_topic_or_partition_is_refused(run: Run, anabranch_topic: str) -> None:
    """Reading does not create topics, and a partition that is not there is not waited for."""
    done = run("consume", "no-such-topic", "-e")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"no topic 'no-such-topic'" in done.stderr
    for command in ("consume", "produce"):
        wrong = run(command, anabranch_topic, "-p", "9", stdin=b"x")
        assert wrong.returncode == 2
        assert b"has no partition 9, only 0 to 3" in wrong.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_reading_cleanly(anabranch_broker: Broker, anabranch_topic: str, run: Run, number: int) -> None:
    """What was there is printed, then the first signal ends it with exit code 0."""
    run("produce", anabranch_topic, stdin=b"a\n")
    with started(anabranch_broker.bootstrap, "consume", anabranch_topic) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"a\n"
        reader.send_signal(number)
        out, err = reader.communicate(timeout=DEADLINE_S)
    assert (reader.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_goes_away_ends_it_quietly(anabranch_broker: Broker, anabranch_topic: str, run: Run) -> None:
    """`anabranch consume ... | head -1` says nothing on stderr."""
    run("produce", anabranch_topic, stdin=b"".join(b"%d\n" % number for number in range(50_000)))
    with started(anabranch_broker.bootstrap, "consume", anabranch_topic) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert (reader.stderr.read(), reader.wait(DEADLINE_S)) == (b"", 0)


def test_a_record_that_is_too_large_is_counted_and_told(run: Run) -> None:
    """Nothing is lost silently: the exit code is not zero, and the line says how many and why."""
    name = f"small-{secrets.token_hex(4)}"
    run("topics", "create", name, "-p", "1", "-c", "max.message.bytes=1000")
    done = run("produce", name, "-X", "batch.size=1", stdin=b"ok\n" + b"x" * 5000 + b"\nok\n")
    assert done.returncode == 4
    assert done.stderr.startswith(f"anabranch: error: 1 of 3 records not acknowledged by {name}: ".encode())
    assert run("consume", name, "-e").stdout == b"ok\nok\n"


def test_a_malformed_line_stops_the_input_and_keeps_what_was_before(run: Run, anabranch_topic: str) -> None:
    """The error names the line; the records before it are delivered and counted."""
    done = run("produce", anabranch_topic, "--json", stdin=b'{"value": "a"}\n{"value": 1}\n{"value": "c"}\n')
    assert done.returncode == 2
    assert b"anabranch: 1 record acknowledged" in done.stderr
    assert b"stdin line 2: value: allowed is a string" in done.stderr
    assert run("consume", anabranch_topic, "-e").stdout == b"a\n"


def test_a_broker_that_is_not_there_is_exit_code_3() -> None:
    """One line names the address and how to start one; librdkafka's own lines do not litter stderr."""
    commands = [["topics", "ls"], ["groups", "ls"], ["produce", "orders", __file__], ["consume", "orders"]]
    with ExitStack() as stack:  # side by side: each waits a few seconds for a broker that may be starting
        running = [stack.enter_context(started("127.0.0.1:1", *words)) for words in commands]
        for process in running:
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (process.returncode, out) == (3, b"")
            assert err.startswith(b"anabranch: error: no broker answers at 127.0.0.1:1 (")
            assert b"`anabranch broker`" in err
            assert err.count(b"\n") == 1

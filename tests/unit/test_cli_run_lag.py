"""`lag` and `why`: what is made of what the cluster and the processes say."""

from __future__ import annotations

import json
import os
import socket
import threading
from argparse import Namespace
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from anabranch.cli.lag import as_json, as_text, joined, told_timestamps, with_ages
from anabranch.cli.status import PartitionStatus, Status
from anabranch.cli.status_sockets import ask_processes, state_folder
from anabranch.cli.why import told_by_commits, told_by_processes
from anabranch.control.carryover import encode
from anabranch.control.leader_epochs import Run
from anabranch.kafka.groups import GroupDescription, Member, Position

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEMBER = Member("member-1", None, "billing-1", "/10.0.0.7", (("orders", 0),))


def group(*positions: Position, members: tuple[Member, ...] = (MEMBER,), state: str = "stable") -> GroupDescription:
    return GroupDescription("billing", state, "cooperative-sticky", "127.0.0.1:9092", members, positions)


def status(*partitions: PartitionStatus, why: tuple[str, ...] = ()) -> Status:
    return Status("billing", "billing-1", "1", "running", 5, 0, 0, 0, 0, 0, 1, 1, (), partitions, 0, 0.0, "", why)


def partition(number: int, committable: int) -> PartitionStatus:
    return PartitionStatus("orders", number, 10, committable, 20, 20 - committable, False, committable, 0.5, 5000)


@contextmanager
def listening(path: Path, answer: bytes) -> Iterator[None]:
    """Answer one connection, as a running process would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(os.path.relpath(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()


def test_lag_counts_from_committable_where_a_process_tells_it_and_else_from_committed() -> None:
    """What is settled but not yet committed is no lag; only the process that settled it knows."""
    described = group(Position("orders", 0, 10, 20, "member-1"), Position("orders", 1, 10, 20, None))
    lag = joined(described, [status(partition(0, 18))])
    assert [(each.lag, each.next_offset) for each in lag.partitions] == [(2, 18), (10, 10)]
    assert lag.lag == 12


def test_lag_in_seconds_is_the_age_of_the_next_record() -> None:
    """Nothing left is no age; what cannot be read is not known."""
    described = group(
        Position("orders", 0, 20, 20, None), Position("orders", 1, 5, 20, None), Position("orders", 2, 5, 20, None)
    )
    lag = with_ages(joined(described, []), {("orders", 1): 90_000}, now_s=100.0)
    assert [each.lag_s for each in lag.partitions] == [0.0, 10.0, None]
    assert lag.lag_s == 10.0


def test_a_process_tells_the_age_of_the_record_that_it_holds() -> None:
    """Then it need not be read again."""
    assert told_timestamps([status(partition(0, 18))]) == {("orders", 0): 5000}


def test_the_table_has_totals_and_says_where_its_numbers_come_from() -> None:
    """A column that nobody can fill is left out."""
    described = group(Position("orders", 0, 10, 20, "member-1"), Position("orders", 1, 10, 15, None))
    text = as_text(joined(described, []))
    assert text.splitlines()[0] == "group billing: stable, 1 member, lag 15 records"
    assert "no process answers here (--state-dir says where to look)" in text
    assert "COMMITTABLE" not in text
    assert text.splitlines()[-1].split() == ["total", "-", "-", "-", "15", "-", "-"]
    with_process = as_text(joined(described, [status(partition(0, 18))]))
    assert "true lag, from 1 running process" in with_process
    assert "COMMITTABLE" in with_process


def test_lag_as_json_has_the_totals_too() -> None:
    """A monitor reads one object."""
    shown = json.loads(as_json(joined(group(Position("orders", 0, 10, 20, "m")), [])))
    assert shown["lag"] == 10
    assert shown["partitions"][0]["committed"] == 10


def test_only_the_wanted_topics_are_counted() -> None:
    """--topic narrows rows and totals."""
    described = group(Position("orders", 0, 10, 20, None), Position("refunds", 0, 0, 5, None))
    assert joined(described, [], ["refunds"]).lag == 5


def test_a_group_without_members_is_told_to_be_started() -> None:
    """The most common reason of all."""
    lines = told_by_commits(group(Position("orders", 0, 10, 20, None), members=(), state="empty"), {}, {})
    assert "it has no members" in lines[0]
    assert "anabranch run" in lines[0]
    assert lines[1] == "orders/0: committed up to 10, 10 offsets to go."


def test_a_carryover_tells_which_record_holds_the_position_back() -> None:
    """Eight records beyond 10 are settled: 10 itself is the blocker."""
    metadata = {("orders", 0): encode([Run(11, 18, 3)], committable=10, topic_id="id")}
    lines = told_by_commits(group(Position("orders", 0, 10, 20, "m")), metadata, {"orders": "id"})
    assert lines[1] == (
        "orders/0: committed up to 10, 10 offsets to go; 8 records of them are settled already, the last at 18: the "
        "record at 10 holds the position back. Look at it with `anabranch consume orders -p 0 -o 10 -c 1`."
    )


@pytest.mark.parametrize("metadata", ["", "somebody else's", "anabranch:9:xyz", "anabranch:1:broken"])
def test_metadata_that_is_not_believed_adds_nothing(metadata: str) -> None:
    """Another tool's, another version's, damaged: the position is told all the same."""
    lines = told_by_commits(group(Position("orders", 0, 10, 20, "m")), {("orders", 0): metadata}, {"orders": "id"})
    assert lines[1] == "orders/0: committed up to 10, 10 offsets to go."


def test_partitions_that_are_done_gone_or_never_committed_are_told_apart() -> None:
    """Only what is behind needs a reason."""
    lines = told_by_commits(
        group(
            Position("orders", 0, 20, 20, "m"),
            Position("orders", 1, None, 5, "m"),
            Position("orders", 2, 7, None, None),
        ),
        {},
        {},
    )
    assert "stable with 1 member (hosts 10.0.0.7)" in lines[0]
    assert lines[1:] == [
        "orders/1: nothing is committed yet, the log ends at 5.",
        "orders/2: does not exist any more; 7 was committed.",
        "1 partition committed to the end: nothing is left there.",
    ]


def test_many_partitions_are_cut_to_the_worst() -> None:
    """A thousand sentences are no answer."""
    positions = [Position("orders", number, 0, 100 + number, "m") for number in range(50)]
    lines = told_by_commits(group(*positions), {}, {})
    assert lines[1].startswith("orders/49: committed up to 0, 149 offsets")
    assert lines[-1] == "30 more partitions behind, each by less."


def test_a_rebalance_is_told() -> None:
    """While members wait for each other nobody commits."""
    lines = told_by_commits(group(state="preparing rebalance"), {}, {})
    assert lines[0].startswith("Group billing is rebalancing (preparing rebalance) with 1 member")


def test_each_process_speaks_under_its_name_when_there_are_several() -> None:
    """One process needs no heading. The answer comes first, then what the process says in detail."""
    calm = "Nothing has held billing back for more than 1 s."
    young = partition(0, 18)
    assert told_by_processes([status(young, why=("A.", "B."))]) == [calm, "A.", "B."]
    assert told_by_processes([status(young, why=("A.",)), status(young)]) == [
        "process 1 (billing-1):", f"  {calm}", "  A.", "process 1 (billing-1):", f"  {calm}"
    ]  # fmt: skip


def test_the_answer_names_what_is_held_back_the_longest() -> None:
    """Whether the rest goes on is half of the answer."""
    held = [replace(partition(number, 10 + number), blocker_age_s=10.0 * number) for number in range(2)]
    assert told_by_processes([status(*held)])[0] == (
        "Held back: orders/1 at offset 11 for 10 s; the other partition goes on."
    )
    many = [replace(partition(number, 10), blocker_age_s=10.0 + number) for number in range(6)]
    assert told_by_processes([status(*many)])[0] == (
        "Held back: orders/5 at offset 10 for 15 s, orders/4 at offset 10 for 14 s, orders/3 at offset 10 for 13 s "
        "and 3 more partitions."
    )
    broken = replace(status(*held), breakers_open=("charge",))
    assert told_by_processes([broken])[0].startswith("Step 'charge' is not called: too many calls failed")
    assert told_by_processes([status()])[0].startswith("It has no partition: it is joining group billing, or")
    away = replace(status(), unreachable_s=7.0, unreachable_error="Connection refused")
    assert told_by_processes([away])[0] == "No broker answers for 7.0 s: Connection refused."


def test_a_position_committed_while_we_asked_is_no_contradiction() -> None:
    """The process is asked first: committed may be a little further by then."""
    lag = joined(group(Position("orders", 0, 19, 20, "member-1")), [status(partition(0, 18))])
    assert (lag.partitions[0].committable, lag.lag, lag.partitions[0].client) == (19, 1, "billing-1")


def test_every_process_that_listens_is_asked_and_a_left_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves its file behind; a strange answer is reported."""
    monkeypatch.chdir(tmp_path)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind("1.sock")
    left.close()
    with (
        listening(tmp_path / "2.sock", b'{"pid": 2}'),
        listening(tmp_path / "3.sock", b"hello"),
        listening(tmp_path / "4.sock", b'{"pid": 4}'),
    ):
        answers, silent = ask_processes(tmp_path)
    assert answers == [{"pid": 2}, {"pid": 4}]
    assert len(silent) == 1
    assert silent[0].startswith("Process 3 gave no answer that can be read")


def test_no_folder_is_no_process(tmp_path: Path) -> None:
    """The group may never have run here."""
    assert ask_processes(tmp_path / "nothing") == ([], [])


def test_the_folder_is_found_as_the_run_found_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag over environment over file over default, as everywhere."""
    monkeypatch.chdir(tmp_path)
    typed = Namespace(group="billing", state_dir=None, config=None)
    assert str(state_folder(typed)) == ".anabranch/billing"
    (tmp_path / "anabranch.toml").write_text('[run]\nstate_dir = "from-file"\n')
    assert str(state_folder(typed)) == "from-file"
    monkeypatch.setenv("ANABRANCH_RUN_STATE_DIR", "from-environment")
    assert str(state_folder(typed)) == "from-environment"
    assert str(state_folder(Namespace(group="billing", state_dir="typed", config=None))) == "typed"

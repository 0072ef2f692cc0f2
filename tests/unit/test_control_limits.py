"""The gate of a partition and the limits of the dead letters."""

import pytest

from anabranch.control.dead_letters import DeathLimits
from anabranch.control.gate import SHARE_BYTES_MIN, SHARE_RECORDS_MIN, PartitionGate
from anabranch.core.policies import DeadLetters, Gate


def test_a_gate_closes_at_the_bound_and_opens_at_seven_tenths() -> None:
    """In between nothing changes, whichever way the load goes."""
    gate = PartitionGate(Gate(records_max=1000), 1)
    assert gate.observe(999, 0) is None
    assert gate.observe(1000, 0) is True
    assert gate.observe(701, 0) is None
    assert gate.observe(700, 0) is False
    assert gate.observe(999, 0) is None


def test_either_of_records_and_bytes_closes_a_gate_and_both_must_fall() -> None:
    """The fuller of the two counts."""
    gate = PartitionGate(Gate(records_max=1000, bytes_max=10_000), 1)
    assert gate.observe(1, 10_000) is True
    assert gate.observe(900, 0) is None
    assert gate.observe(1, 7001) is None
    assert gate.observe(700, 7000) is False


@pytest.mark.parametrize(
    ("partitions", "records", "size"),
    [(1, 50_000, 64 << 20), (4, 12_500, 16 << 20), (1000, SHARE_RECORDS_MIN, SHARE_BYTES_MIN)],
)
def test_a_share_is_an_even_part_of_the_bound_and_at_least_a_fetch(partitions: int, records: int, size: int) -> None:
    """With very many partitions a gate that closes on every fetch would do more harm than the memory."""
    gate = PartitionGate(Gate(), partitions)
    assert (gate.records_max, gate.bytes_max) == (records, size)


def test_a_small_bound_is_not_raised_to_a_fetch() -> None:
    """What the user asked for stays the most that one partition may have."""
    gate = PartitionGate(Gate(records_max=10, bytes_max=2048), 5)
    assert (gate.records_max, gate.bytes_max) == (10, 2048)


def test_the_letter_that_breaks_the_run_is_named_and_not_counted() -> None:
    """A run ends with any record that lives."""
    limits = DeathLimits(DeadLetters("dead", ratio_max=1.0, run_max=3))
    assert [limits.died() for _ in range(3)] == [None] * 3
    assert "run_max" in (limits.died() or "")
    limits.lived(1)
    assert limits.died() is None
    limits.check_invariants()


def test_the_ratio_is_over_the_last_window_of_settled_records() -> None:
    """Deaths fall out of the window as others are settled."""
    limits = DeathLimits(DeadLetters("dead", ratio_max=0.5, window=10, run_max=100))
    assert [limits.died() for _ in range(5)] == [None] * 5
    assert "ratio_max" in (limits.died() or "")
    limits.lived(4)
    assert "ratio_max" in (limits.died() or "")
    limits.lived(1)
    assert limits.died() is None
    limits.check_invariants()


def test_a_ratio_of_one_never_halts() -> None:
    """All may die, if that is what was asked for; memory stays bounded by the window."""
    limits = DeathLimits(DeadLetters("dead", ratio_max=1.0, window=10, run_max=10_000))
    assert all(limits.died() is None for _ in range(1000))
    limits.check_invariants()

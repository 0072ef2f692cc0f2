"""The lease of a Spark member: renewed by answers, from the moment at which the answered report left."""

from __future__ import annotations

from anabranch.spark.lease import SENT_MAX, Lease


def test_a_member_that_was_never_answered_may_begin_nothing() -> None:
    """Sending reports is not enough."""
    lease = Lease(2.0)
    lease.sent(1, 10.0)
    assert not lease.holds(10.0)


def test_an_answer_renews_from_the_sending_of_its_report_and_not_from_its_arrival() -> None:
    """An answer that was long on its way proves only that the driver lived after the report was sent."""
    lease = Lease(2.0)
    lease.sent(1, 10.0)
    lease.answered(1)
    assert lease.holds(11.9)
    assert not lease.holds(12.0)


def test_a_late_answer_to_an_older_report_does_not_shorten_the_lease() -> None:
    """Answers may overtake each other on a new connection."""
    lease = Lease(2.0)
    lease.sent(1, 10.0)
    lease.sent(2, 11.0)
    lease.answered(2)
    lease.answered(1)
    assert lease.until == 13.0


def test_an_answer_to_what_was_never_sent_renews_nothing() -> None:
    """Nothing that the driver says can give more than was asked for."""
    lease = Lease(2.0)
    lease.answered(7)
    assert not lease.holds(0.0)


def test_unanswered_reports_are_remembered_up_to_a_bound() -> None:
    """A driver that never answers costs no memory."""
    lease = Lease(2.0)
    for number in range(SENT_MAX * 3):
        lease.sent(number, float(number))
    assert len(lease._sent) == SENT_MAX
    lease.answered(0)
    assert not lease.holds(0.0)

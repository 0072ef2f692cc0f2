"""Questions that are asked again: what only moves is waited for, and nothing else."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch.kafka.patience import COORDINATOR_MOVES, LEADER_MOVES, patiently


class Cluster:
    """Answers with these errors, one after another, then with 7."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 7


def test_what_moves_is_waited_for() -> None:
    """A topic that was made a moment ago, a coordinator that loads: the answer comes with the next question."""
    cluster = Cluster(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert patiently(cluster, LEADER_MOVES, patience_s=60) == 7
    assert patiently(Cluster(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), COORDINATOR_MOVES, patience_s=60) == 7
    assert cluster.asked == 3


def test_other_errors_are_raised_at_once() -> None:
    """Asking again would not help."""
    cluster = Cluster(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        patiently(cluster, LEADER_MOVES, patience_s=60)
    assert cluster.asked == 1


def test_patience_ends() -> None:
    """What moves for ever is an error after all."""
    with pytest.raises(KafkaException, match="NOT_LEADER"):
        patiently(Cluster(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 2), LEADER_MOVES, patience_s=-1)

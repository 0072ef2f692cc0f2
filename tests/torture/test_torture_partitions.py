"""Many partitions and few descriptors: 1,000 partitions with data under `ulimit -n 1024`."""

from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from torture_broker import BrokerProcess
from torture_clients import QUIET, read_back
from torture_form import Torture
from torture_wire import Wire

TOPIC = "many"
DESCRIPTORS = 1024
START_S_MAX = 3.0


def write_everywhere(bootstrap: str, partitions: int, name: str) -> None:
    """Write one record to each partition with a foreign client."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50, **QUIET})
    for partition in range(partitions):
        producer.produce(TOPIC, f"{name}-{partition}".encode(), partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_1000_partitions_start_quickly_with_few_descriptors(torture: Torture, tmp_path: Path) -> None:
    """After a clean stop 1,000 partitions with data are served again in seconds, all readable, all writable."""
    partitions = torture.pick(300, 1000)
    descriptors = torture.pick(320, DESCRIPTORS)
    flush = "always" if torture.full else "os"
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log", open_files_max=descriptors, flush=flush) as broker:
        broker.start()
        with Wire(broker.bootstrap) as wire:
            assert wire.create_topic(TOPIC, partitions) == 0
        write_everywhere(broker.bootstrap, partitions, "first")
        broker.stop()
        seconds = broker.start()
        torture.say(
            f"{partitions} partitions with data, ulimit -n {descriptors}: answering {seconds:.2f} s after a clean stop"
        )
        write_everywhere(broker.bootstrap, partitions, "second")
        found = read_back(broker.bootstrap, TOPIC, dict.fromkeys(range(partitions), 2))
        used = open_files(broker.pid)
        broker.kill()
        after_kill = broker.start()
        again = read_back(broker.bootstrap, TOPIC, dict.fromkeys(range(partitions), 2))
    for partition, records in found.items():
        assert records == [(0, f"first-{partition}".encode()), (1, f"second-{partition}".encode())]
    assert again == found
    torture.say(f"all read and written with {used} descriptors open; answering {after_kill:.2f} s after kill -9")
    assert used < descriptors
    assert not torture.full or seconds < START_S_MAX, f"started in {seconds:.2f} s"

"""The broker as a process, a thread and a child: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from raw_client import RawClient, batch_of, fetch_request
from waiting import eventually

from anabranch import Broker, PeerError, UsageError
from anabranch.broker.wire.messages.metadata import MetadataRequest

END_S_MAX = 20.0


def _values(bootstrap: str, topic: str) -> list[bytes | None]:
    with RawClient(bootstrap) as client:
        return [record.value for record in client.read_all(topic)]


def _write(bootstrap: str, topic: str, value: bytes) -> None:
    with RawClient(bootstrap) as client:
        client.describe_topic(topic, may_create=True)
        assert client.produce(topic, batch_of([value])).error_code == 0


@pytest.mark.parametrize("in_process", [False, True], ids=["a process", "a thread"])
def test_a_broker_lives_as_long_as_its_block(tmp_path: Path, in_process: bool) -> None:
    """Port 0 picks a free one, clients can connect when `with` begins, nobody listens when it has ended."""
    with Broker(tmp_path / "data", in_process=in_process) as broker:
        bootstrap = broker.bootstrap
        host, port = bootstrap.split(":")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        assert (broker.pid is None) is in_process
        _write(bootstrap, "orders", b"kept")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    with Broker(tmp_path / "data", in_process=not in_process) as broker:
        assert _values(broker.bootstrap, "orders") == [b"kept"]


def test_two_brokers_run_side_by_side_in_one_process() -> None:
    """Nothing is shared between them: each has its own loop, port and folder."""
    with Broker(in_process=True) as first, Broker(in_process=True) as second:
        _write(first.bootstrap, "orders", b"first")
        _write(second.bootstrap, "orders", b"second")
        assert _values(first.bootstrap, "orders") == [b"first"]
        assert _values(second.bootstrap, "orders") == [b"second"]


def test_a_temporary_folder_is_removed_with_its_broker() -> None:
    """`Broker()` without a folder leaves nothing behind."""
    with Broker() as broker:
        folder = Path(broker.options.data_dir)
        assert folder.exists()
    assert not folder.exists()


def test_a_broker_that_is_refused_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are checked before a temporary folder is made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError):
        Broker(flush="sometimes")
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Two brokers on one folder would ruin it: the second says who has it, and the first goes on."""
    with Broker(tmp_path) as first:
        with pytest.raises(UsageError, match=rf"in use by another broker \(process {first.pid}\)"):
            Broker(tmp_path, in_process=True).start()
        with pytest.raises(PeerError, match="did not start"):
            Broker(tmp_path).start()
        _write(first.bootstrap, "orders", b"still here")


def test_a_folder_is_free_again_when_its_broker_was_killed(tmp_path: Path) -> None:
    """The lock dies with its process, also by kill -9."""
    broker = Broker(tmp_path).start()
    _write(broker.bootstrap, "orders", b"x")
    broker.kill()
    with Broker(tmp_path) as again:
        assert _values(again.bootstrap, "orders") == [b"x"]


def test_a_port_in_use_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """The message names the address and the option; the folder is let go of."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}.*--listen"):
            Broker(tmp_path, listen=f"127.0.0.1:{port}", in_process=True).start()
    with Broker(tmp_path, in_process=True):
        pass


def test_listening_beyond_loopback_needs_an_address_for_clients() -> None:
    """Without `advertise` clients elsewhere would be sent to an address that is not theirs."""
    with pytest.raises(UsageError, match="advertise"):
        Broker(listen="0.0.0.0:0")


def test_clients_are_told_the_advertised_address() -> None:
    """Metadata names it in place of the address listened on."""
    with Broker(advertise="broker.example:1234", in_process=True) as broker, RawClient(broker.bootstrap) as client:
        (told,) = client.ask(MetadataRequest(topics=[])).brokers
        assert (told.host, told.port) == ("broker.example", 1234)


def test_misuse_is_answered_with_what_to_do() -> None:
    """Not running, running already, an unknown option, killing a thread: each error names the fix."""
    broker = Broker(in_process=True)
    with pytest.raises(UsageError, match="with Broker"):
        _ = broker.bootstrap
    with broker:
        with pytest.raises(UsageError, match="running already"):
            broker.start()
        with pytest.raises(UsageError, match="process of its own"):
            broker.kill()
    with pytest.raises(UsageError, match="no_such_option"):
        Broker(no_such_option=1)
    with pytest.raises(UsageError, match="flush"):
        Broker(flush="sometimes")


def test_an_unknown_format_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A folder that a later broker wrote is left as it is, and the sentence says which version it has."""
    with Broker(tmp_path, in_process=True):
        pass
    catalog = tmp_path / "@catalog.json"
    newer = catalog.read_bytes().replace(b'"version": 1', b'"version": 2')
    catalog.write_bytes(newer)
    with pytest.raises(UsageError, match="format version 2, this broker knows 1"):
        Broker(tmp_path, in_process=True).start()
    assert catalog.read_bytes() == newer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_the_command_stops_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """`anabranch broker` says where it listens, and ends with 0 although clients are connected and wait."""
    command = [sys.executable, "-m", "anabranch", "broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:")
        bootstrap = line.split()[-1]
        _write(bootstrap, "orders", b"durable")
        with RawClient(bootstrap) as waiting:
            waiting.send(fetch_request("orders", 1, wait_ms=60_000), 12)
            process.send_signal(number)
            _, errors = process.communicate(timeout=END_S_MAX)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    with Broker(tmp_path) as again:
        assert _values(again.bootstrap, "orders") == [b"durable"]


_START_AND_WAIT = """
import sys, time
from anabranch import Broker
broker = Broker(sys.argv[1]).start()
print(broker.pid, broker.bootstrap, flush=True)
time.sleep(600)
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Fault 16, "parent process killed -9: its workers exit": no test run leaves a broker behind."""
    command = [sys.executable, "-c", _START_AND_WAIT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid_text, bootstrap = parent.stdout.readline().split()
        _write(bootstrap, "orders", b"x")
        parent.kill()
    eventually(lambda: not _is_running(int(pid_text)), "the orphaned broker ends")
    with Broker(tmp_path) as again:
        assert _values(again.bootstrap, "orders") == [b"x"]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_broker_started_by_a_thread_that_ends_goes_on(tmp_path: Path) -> None:
    """A test runner starts fixtures in threads: the end of the thread is not the end of the broker."""
    broker = Broker(tmp_path)
    starter = threading.Thread(target=broker.start)
    starter.start()
    starter.join()
    try:
        _write(broker.bootstrap, "orders", b"x")
        assert _values(broker.bootstrap, "orders") == [b"x"]
    finally:
        broker.stop()

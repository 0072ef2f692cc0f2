"""Freeing a place: addresses as people write them, and brokers that answer nonsense."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from anabranch.core.errors import PeerError
from anabranch.kafka.client import Connection
from anabranch.kafka.leave import _host_and_port, leave_group


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("kafka.example", ("kafka.example", 9092)),
        (" kafka:19092", ("kafka", 19092)),
        ("[::1]:29092", ("::1", 29092)),
        ("[::1]", ("::1", 9092)),
        ("PLAINTEXT://kafka:1", ("kafka", 1)),
    ],
)
def test_an_address_without_a_port_has_the_usual_one(address: str, found: tuple[str, int]) -> None:
    """As the client library reads it."""
    assert _host_and_port(address) == found


@pytest.mark.parametrize(
    "bodies",
    [
        [b""],
        [struct.pack(">hih", 0, 1, 2) + b"\xff\xfe" + struct.pack(">i", 1)],
        [struct.pack(">hih", 0, 1, 9) + b"127.0.0.1" + struct.pack(">i", -1)],
        [None, b"\x00"],
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_of_the_peer(bodies: list[bytes | None]) -> None:
    """Whatever comes back, the run's end goes on. None stands for the server's own address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        own = struct.pack(">hih", 0, 1, 9) + b"127.0.0.1" + struct.pack(">i", port)

        def serve() -> None:
            for body in bodies:
                peer, _ = server.accept()
                with peer:
                    peer.recv(4096)
                    answer = struct.pack(">i", 1) + (own if body is None else body)
                    peer.sendall(struct.pack(">i", len(answer)) + answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(PeerError, match="was not freed"):
            leave_group(Connection(f"127.0.0.1:{port}"), "billing", "", "billing-0")
        thread.join(10)


def test_an_address_that_is_none_is_an_error_of_the_peer() -> None:
    """A port that is no number."""
    with pytest.raises(PeerError, match="was not freed"):
        leave_group(Connection("localhost:many"), "billing", "", "billing-0")

"""Free the place of a member where the client library does not, or not soon.

A static member's place it leaves to the session time-out. A dynamic member that closes while it waits for the others in
a rebalance is not heard: a broker takes the requests of a connection one after another, so the library's own LeaveGroup
stands behind a JoinGroup that is answered when the last of the others has come. The library gives up after 5 s, and the
group waits for the ghost until its session ends. On a connection of our own it is heard at once.

Two frames over a socket of our own: FindCoordinator 0, then LeaveGroup 3 (KIP-345), which names the instance. Plaintext
only: with SASL or TLS configured the place is freed when the session ends.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import PeerError

if TYPE_CHECKING:
    from anabranch.kafka.client import Connection

TIMEOUT_S: Final = 5.0
PORT: Final = 9092
"""Of an address without one."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
_FIND_COORDINATOR: Final = 10
_LEAVE_GROUP: Final = 13
_UNKNOWN_MEMBER_ID: Final = 25
_FENCED_INSTANCE_ID: Final = 82
_CLIENT: Final = "anabranch"


def leave_group(connection: Connection, group: str, member: str, instance: str | None) -> None:
    """Make the coordinator forget a member, so that its partitions move at once; waits for the answer.

    A static member is known by its instance, a dynamic one by its member id. Answers quietly when the place was free
    already, or has another member by now: that one keeps it. Raise PeerError when it could not be freed.
    """
    who = instance or member
    protocol = connection.settings.get("security.protocol", "plaintext").lower()
    if protocol != "plaintext":
        raise PeerError(
            f"the place of {who} cannot be freed over {protocol}: it is free when its session time-out ends"
        )
    try:
        host, port = _coordinator(connection.bootstrap, group)
        answer = _ask(
            host, port, _LEAVE_GROUP, 3, _string(group) + struct.pack(">i", 1) + _string(member) + _string(instance)
        )
        _throttle, code, count = struct.unpack_from(">ihi", answer)
        if code == 0 and count > 0:
            code = struct.unpack_from(">h", answer, len(answer) - 2)[0]  # the one member's own code ends the answer
    except (OSError, ValueError, OverflowError, struct.error) as error:
        raise PeerError(f"the place of {who} in group {group} was not freed: {error}") from error
    if code not in {0, _UNKNOWN_MEMBER_ID, _FENCED_INSTANCE_ID}:
        raise PeerError(f"the place of {who} in group {group} was not freed: error code {code}")


def _coordinator(bootstrap: str, group: str) -> tuple[str, int]:
    error: Exception = PeerError(f"no address in {bootstrap!r}")
    for address in bootstrap.split(","):
        try:
            answer = _ask(*_host_and_port(address), _FIND_COORDINATOR, 0, _string(group))
        except (OSError, ValueError, OverflowError) as problem:
            error = problem
            continue
        code, _node, length = struct.unpack_from(">hih", answer)
        if code:
            raise PeerError(f"group {group} has no coordinator now: error code {code}")
        return answer[8 : 8 + length].decode(), struct.unpack_from(">i", answer, 8 + length)[0]
    raise OSError(str(error)) from error


def _host_and_port(address: str) -> tuple[str, int]:
    """Read an address as the library does: a protocol before it and the port may be left out."""
    address = address.strip().rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return address.strip("[]"), PORT
    return host.strip("[]"), int(port)


def _ask(host: str, port: int, key: int, version: int, body: bytes) -> bytes:
    """Send one request (header 1) and return the answer's body."""
    frame = struct.pack(">hhi", key, version, 1) + _string(_CLIENT) + body
    with socket.create_connection((host, port), TIMEOUT_S) as peer:
        peer.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", _exactly(peer, 4))[0]
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise OSError(f"an answer of {size} bytes makes no sense")
        return _exactly(peer, size)[4:]  # behind the correlation id


def _exactly(peer: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = peer.recv(count - len(received))
        if not part:
            raise OSError("the broker closed the connection")
        received += part
    return received


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded

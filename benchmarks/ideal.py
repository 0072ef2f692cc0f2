"""The least that any log server does, measured in the same run: bytes from a socket to a file, and back.

No protocol, no checksum, no index: what remains is the kernel's copying. A broker's figure divided by this one says how
much of the machine its own work costs, whatever machine it is.
"""

import os
import resource
import socket
import tempfile
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path

CHUNK_BYTES = 1024 * 1024


def copy_rate(direction: str, total_bytes: int) -> float:
    """Answer MB per CPU-second of a process that moves bytes from a socket to a file ("in") or back ("out")."""
    receiver, sender = Pipe(duplex=False)
    near, far = _loopback()
    with tempfile.TemporaryDirectory() as folder:
        process = Process(target=_measured, args=(direction, far, Path(folder) / "log", total_bytes, sender))
        process.start()
        far.close()
        if direction == "in":
            _send(near, total_bytes)
        else:
            _drain(near, total_bytes)
        cpu_s = float(receiver.recv())
        process.join()
        near.close()
    return total_bytes / 1e6 / cpu_s


def _loopback() -> tuple[socket.socket, socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    return near, far


def _measured(direction: str, peer: socket.socket, path: Path, total_bytes: int, result: Connection) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    work = _socket_to_file
    if direction == "out":
        chunk = os.urandom(CHUNK_BYTES)
        for position in range(0, total_bytes, CHUNK_BYTES):
            os.pwrite(descriptor, chunk, position)
        work = _file_to_socket
    before = resource.getrusage(resource.RUSAGE_SELF)
    work(peer, descriptor, total_bytes)
    after = resource.getrusage(resource.RUSAGE_SELF)
    result.send(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    os.close(descriptor)


def _socket_to_file(peer: socket.socket, descriptor: int, total_bytes: int) -> None:
    buffer = memoryview(bytearray(CHUNK_BYTES))
    position = 0
    while position < total_bytes:
        count = peer.recv_into(buffer)
        os.pwrite(descriptor, buffer[:count], position)
        position += count


def _file_to_socket(peer: socket.socket, descriptor: int, total_bytes: int) -> None:
    for position in range(0, total_bytes, CHUNK_BYTES):
        peer.sendall(os.pread(descriptor, CHUNK_BYTES, position))


def _send(peer: socket.socket, total_bytes: int) -> None:
    chunk = os.urandom(CHUNK_BYTES)
    for _ in range(0, total_bytes, CHUNK_BYTES):
        peer.sendall(chunk)


def _drain(peer: socket.socket, total_bytes: int) -> None:
    buffer = bytearray(CHUNK_BYTES)
    while total_bytes > 0:
        total_bytes -= peer.recv_into(buffer)

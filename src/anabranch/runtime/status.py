"""The status socket: a running process tells, to whoever connects, how it is and why it is not committing.

`<state_dir>/<pid>.sock`, mode 0600; one JSON object per connection, then the end. A process that was killed leaves its
file behind: nobody listens there, so whoever asks passes it over, and whoever needs the name takes it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER_S_MAX: Final = 2.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
RUNS_PER_PROCESS_MAX: Final = 100
FOLDER_DEFAULT: Final = ".anabranch"
FOLDER_GONE_MAX: Final = 10
_PATH_BYTES_MAX: Final = 100  # of 108 that the kernel takes; macOS takes 104
_BINDING: Final = threading.Lock()
"""One run of a process at a time looks for a name: what is bound and does not listen yet looks like one left behind."""


class StatusSocket:
    """The listening side. Lives on the loop."""

    def __init__(self, folder: Path, describe: Callable[[], dict[str, Any]]) -> None:
        self._folder = folder
        self._describe = describe
        self._server: asyncio.Server | None = None
        self.path: Path | None = None

    async def open(self) -> None:
        """Listen; raise UsageError when the folder cannot be used."""
        try:
            listening, self.path = self._bound()
        except OSError as error:
            raise UsageError(
                f"the status socket cannot be made in {self._folder}: {error}; choose another folder with state_dir"
            ) from error
        self._server = await asyncio.start_unix_server(self._answer, sock=listening)

    async def close(self) -> None:
        """Listen no more and remove the file."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self._remove_folder()

    def _bound(self) -> tuple[socket.socket, Path]:
        for _ in range(FOLDER_GONE_MAX):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                return _bind(self._folder)
            except FileNotFoundError:
                continue  # another run has ended just now, and took the empty folder with it
        self._folder.mkdir(parents=True, exist_ok=True)
        return _bind(self._folder)

    def _remove_folder(self) -> None:
        """Leave no empty folder behind where nobody has asked for one: in `.anabranch`, and that one itself."""
        if self._folder.parent.name != FOLDER_DEFAULT:
            return
        with suppress(OSError):  # something else is in it, or somebody was faster
            self._folder.rmdir()
            self._folder.parent.rmdir()

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(json.dumps(self._describe()).encode())
            await asyncio.wait_for(writer.drain(), ANSWER_S_MAX)
        except (ConnectionError, TimeoutError):
            pass  # whoever asked has gone, or does not read: nothing of ours depends on it
        finally:
            writer.close()


def ask(path: Path | str, timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
    """Ask one process how it is; raise OSError when nobody listens there (any more) or no answer comes in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short(Path(path)) as address:
        connection.settimeout(timeout_s)
        connection.connect(address)
        data = bytearray()
        while part := connection.recv(1 << 16):
            data += part
            if len(data) > ANSWER_BYTES_MAX:
                raise OSError(f"the answer of {path} is longer than {ANSWER_BYTES_MAX} bytes")
    answer: dict[str, Any] = json.loads(data)
    return answer


def _bind(folder: Path) -> tuple[socket.socket, Path]:
    """Listen under the first free name of this process: it may have several runs in one folder."""
    with _BINDING:
        for number in range(1, RUNS_PER_PROCESS_MAX + 1):
            path = folder / (f"{os.getpid()}.sock" if number == 1 else f"{os.getpid()}-{number}.sock")
            if path.exists():
                if _is_alive(path):
                    continue
                path.unlink(missing_ok=True)
            return _listening(path), path
    raise OSError(f"{RUNS_PER_PROCESS_MAX} runs of this process use the folder")


def _listening(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        with _short(path) as address:
            listening.bind(address)
        path.chmod(0o600)  # before anyone can connect
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short(path) as address:
        connection.settimeout(ANSWER_S_MAX)
        try:
            connection.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full queue of connections, another user's: somebody is there
        return True


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a way to write the path that the kernel takes: it allows about 100 bytes."""
    nearest = min(str(path), os.path.relpath(path), key=len)
    if len(os.fsencode(nearest)) <= _PATH_BYTES_MAX or not Path("/proc/self/fd").exists():
        yield nearest
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

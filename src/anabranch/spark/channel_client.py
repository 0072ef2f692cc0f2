"""The member's side of the control channel: reports up, answers and orders down, and the lease that follows from them.

A thread of its own sends a report every half second and reads what comes, so that a handler that holds the member's
loop does not cost the lease. When the connection breaks it connects again, with the same hello, for as long as it is
wanted. Everything that the driver orders is kept here until the member's main thread looks: `wait` wakes it up. Who is
refused, at the start or later, holds no lease from that moment on and does not come back.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import PeerError
from anabranch.spark.lease import REPORT_S, Lease
from anabranch.spark.messages import (
    FIRST_LINE,
    FRAME_BYTES_MAX,
    MEMBER_HEARS,
    Answer,
    Dismissed,
    FrameReader,
    Hello,
    Refused,
    Report,
    Stop,
    Terminate,
    Welcome,
    frame,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.spark.messages import Ended, FromDriver

CONNECT_S: Final = 2.0
REACH_S: Final = 10.0
"""How long a member that starts tries to reach the driver."""
AGAIN_S: Final = 0.2
EXIT_FORCED: Final = 130


class ChannelClient:
    """One member's connection to its driver."""

    def __init__(self, address: tuple[str, int], hello: Hello, lease: Lease | None = None) -> None:
        """Do nothing yet."""
        self._address = address
        self._hello = hello
        self._number = 0
        self._socket: socket.socket | None = None
        self._reader = _new_reader()
        self._statistics: Mapping[str, Any] | None = None
        self._ended: Ended | None = None
        self._is_closing = False
        self._news = threading.Event()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._main, name="anabranch-channel", daemon=True)
        self.lease = lease or Lease()
        self.welcome: Welcome | None = None
        self.refused: Refused | None = None
        self.stop_asked: Stop | None = None
        self.dismissed: Dismissed | None = None

    def open(self) -> None:
        """Connect and wait until the driver has welcomed or refused this member; raise PeerError when it cannot be."""
        until = time.monotonic() + REACH_S
        while not self._connect():
            if time.monotonic() > until:
                host, port = self._address
                raise PeerError(
                    f"the driver's control channel at {host}:{port} cannot be reached from {socket.gethostname()}: "
                    "set spark.driver.host to an address of the driver that executors can reach"
                )
            time.sleep(AGAIN_S)
        self._thread.start()
        while self.welcome is None and self.refused is None:
            if time.monotonic() > until:
                raise PeerError("the driver does not answer on its control channel: is it still running?")
            self.wait(until - time.monotonic())

    def may_start(self) -> bool:
        """Tell whether a call may begin; never blocks."""
        return self.refused is None and self.lease.holds(time.monotonic())

    def tell(self, statistics: Mapping[str, Any]) -> None:
        """Have the next report carry these."""
        self._statistics = statistics

    def end(self, ended: Ended, timeout_s: float) -> Dismissed | None:
        """Tell how the run ended, until the driver has heard it; None when it does not answer."""
        self._ended = ended
        self._send(ended)
        until = time.monotonic() + timeout_s
        while self.dismissed is None and (left_s := until - time.monotonic()) > 0:
            self.wait(left_s)
        return self.dismissed

    def wait(self, timeout_s: float) -> None:
        """Wait for news from the driver, at most so long."""
        self._news.wait(timeout_s)
        self._news.clear()

    def close(self) -> None:
        """Say no more."""
        self._is_closing = True
        self._disconnect()

    # ── the thread ──

    def _main(self) -> None:
        report_at = 0.0
        while not self._is_closing:
            if self._socket is None and self.refused is not None:
                break
            if self._socket is None and not self._connect():
                time.sleep(AGAIN_S)
                continue
            now = time.monotonic()
            if now >= report_at:
                report_at = now + REPORT_S
                self._report(now)
            self._receive(max(0.001, report_at - now))
        self._disconnect()

    def _report(self, now: float) -> None:
        self._number += 1
        statistics, self._statistics = self._statistics, None
        self.lease.sent(self._number, now)
        self._send(Report(self._number, None if statistics is None else dict(statistics)))

    def _receive(self, timeout_s: float) -> None:
        connection = self._socket
        if connection is None:
            return
        try:
            connection.settimeout(timeout_s)
            data = connection.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except PeerError:
            self._disconnect()

    def _take(self, message: FromDriver) -> None:
        if isinstance(message, Answer):
            self.lease.answered(message.number)
            return
        if isinstance(message, Terminate):
            os._exit(EXIT_FORCED)
        if isinstance(message, Welcome):
            self.welcome = message
        elif isinstance(message, Refused):
            self.refused = message
        elif isinstance(message, Stop):
            self.stop_asked = message
        else:
            self.dismissed = message
        self._news.set()

    # ── the socket ──

    def _connect(self) -> bool:
        try:
            connection = socket.create_connection(self._address, CONNECT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._sending:  # an end that is told now is either in here, or finds the new connection
                ended = b"" if self._ended is None else frame(self._ended)
                connection.sendall(FIRST_LINE + frame(self._hello) + ended)
                self._reader = _new_reader()
                self._socket = connection
        except OSError:
            return False
        return True

    def _send(self, message: Report | Ended) -> None:
        try:
            with self._sending:  # the member's main thread tells of its end
                connection = self._socket
                if connection is None:
                    return
                connection.settimeout(CONNECT_S)
                connection.sendall(frame(message))
        except OSError:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            with suppress(OSError):
                connection.close()


def _new_reader() -> FrameReader:
    return FrameReader(MEMBER_HEARS, bytes_max=FRAME_BYTES_MAX, first_line=False)

"""A broker that can be stopped or killed and comes back on the same port and folder, as an operator would do it."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING, Any, Self

from anabranch import Broker

if TYPE_CHECKING:
    from pathlib import Path


class RestartableBroker:
    """A broker in a process of its own with a folder and a port that stay."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.bootstrap = f"127.0.0.1:{_free_port()}"
        self._broker = Broker(folder, listen=self.bootstrap, **options)

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    def restart(self, how: str) -> None:
        """Stop it (`clean`) or kill it (`kill -9`), and start it again."""
        self.end(how)
        self.start()

    def end(self, how: str) -> None:
        """Stop or kill it."""
        if how == "clean":
            self._broker.stop()
        else:
            self._broker.kill()

    def start(self) -> None:
        """Start it again."""
        self._broker.start()


def _free_port() -> int:
    """Find a port outside the range from which the kernel takes the ports of outgoing connections.

    A client that reconnects to a port of that range while nobody listens may be given that very port, and then talks to
    itself.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

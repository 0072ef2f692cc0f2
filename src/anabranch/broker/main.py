"""Run a broker: from options to `listening on HOST:PORT`, until told to stop.

Stopping is a story with numbered steps (`_serve`): take no more connections, end those there are, let syncs end, store
the groups' state, close the logs, let go of the folder. A second signal skips the rest: the next start recovers.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Final

from anabranch.broker.data_folder import DataFolder, open_files_max
from anabranch.broker.log.disk import DiskStore
from anabranch.broker.node import Node
from anabranch.broker.server import Server
from anabranch.core.options import BrokerOptions, parse_listen

logger = logging.getLogger("anabranch.broker")

EXIT_FORCED: Final = 130


def serve(options: BrokerOptions, *, announce: Callable[[str, int], None] | None = None) -> int:
    """Run a broker in this process until SIGTERM or Ctrl-C; answer the exit code. Call it on the main thread."""
    stop = Stop()
    signals = {signal.SIGTERM, signal.SIGINT}

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            logger.warning("second signal: stopping at once, the next start recovers")
            os._exit(EXIT_FORCED)
        logger.info("%s: stopping", signal.Signals(number).name)
        stop.request()

    previous = {number: signal.signal(number, on_signal) for number in signals}
    try:
        run(options, stop, announce or _print_address)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


class Stop:
    """A wish to stop that may come from another thread or a signal handler, also before the loop runs."""

    def __init__(self) -> None:
        self.requested = False
        self._wake: Callable[[], object] | None = None

    def request(self) -> None:
        """Stop, soon."""
        self.requested = True
        if self._wake is not None:
            self._wake()

    def attach(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        """Have `event` set on `loop` when a stop is requested."""
        self._wake = lambda: loop.call_soon_threadsafe(event.set)
        if self.requested:
            event.set()

    def detach(self) -> None:
        """Forget the loop: it is about to close."""
        self._wake = None


def run(options: BrokerOptions, stop: Stop, announce: Callable[[str, int], None]) -> None:
    """Run a broker on a new event loop in this thread until `stop` is requested."""
    if options.beyond_loopback:
        logger.warning("listening on %s: there is no authentication yet, anybody may read and write", options.listen)
    folder = DataFolder(options.data_dir)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(options, stop, announce))
    finally:
        folder.release()


async def _serve(options: BrokerOptions, stop: Stop, announce: Callable[[str, int], None]) -> None:
    files, connections = open_files_max(options.open_files_max, options.connections_max)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    node = Node(options, DiskStore(options.data_dir, open_files_max=files))
    server = Server(node, replace(options, connections_max=connections))
    try:
        host, port = await server.listen()
        node.advertised = parse_listen(options.advertise) if options.advertise else (host, port)
        node.start()
        gc.freeze()  # what the start made stays: the collector need not look at it again
        stop.attach(loop, stopping)
        announce(host, port)
        await server.run(stopping)
    finally:
        stop.detach()
        # 1. Groups stay as they are: members whose connections end now are still members after a restart.
        node.groups.close()
        # 2. No more connections, and those there are end.
        await server.close()
        # 3. Syncs end, groups and logs are stored as clean.
        await node.close()
    logger.info("stopped cleanly")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed: the broker runs on asyncio's own loop, at about half the speed")
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _print_address(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"listening on {shown}:{port}\n")
    sys.stdout.flush()

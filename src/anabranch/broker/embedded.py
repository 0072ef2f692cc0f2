"""`Broker`: a Kafka for a test, a notebook or a demo, from one line of Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, Self

from anabranch.core.errors import PeerError, UsageError
from anabranch.core.options import BrokerOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from anabranch.broker.main import Stop

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 30.0
_EMBEDDED_DEFAULTS: Final[dict[str, Any]] = {"listen": "127.0.0.1:0", "flush": "os", "log_level": "warning"}


class Broker:
    """A broker that lives as long as the `with` block.

    It runs in a process of its own, or with `in_process=True` in a thread of this one. Without `data_dir` its folder is
    temporary. Everything else is an option of `anabranch broker`, by its name: `Broker(flush="always",
    default_partitions=4)`. Defaults for embedding: a free port, flush os, warnings only.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str] | None = None, *, in_process: bool = False, **options: Any
    ) -> None:
        known = {**_EMBEDDED_DEFAULTS, **options}
        try:
            self.options = BrokerOptions(**known, data_dir=str(data_dir or "."))
        except TypeError as error:
            raise UsageError(f"{error}; the options are those of `anabranch broker --help`, with underscores") from None
        self._remove_folder: Callable[[], object] | None = None
        if data_dir is None:
            folder = tempfile.mkdtemp(prefix="anabranch-")
            self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.options = replace(self.options, data_dir=folder)
        self._running: _Thread | _Process | None = None
        self._in_process = in_process
        self._bootstrap = ""

    def __repr__(self) -> str:
        return f"<Broker {self._bootstrap or 'not running'} {'thread' if self._in_process else 'process'}>"

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        if self._running is None:
            raise UsageError("the broker is not running: use it as `with Broker() as broker:`, or call start()")
        return self._bootstrap

    @property
    def pid(self) -> int | None:
        """The id of the broker's process; None when it is a thread."""
        return self._running.pid if self._running is not None else None

    def start(self) -> Self:
        """Start, and return when clients can connect."""
        if self._running is not None:
            raise UsageError("the broker is running already")
        running = _Thread(self.options) if self._in_process else _Process(self.options)
        self._bootstrap = running.wait_for_address()
        # A second start takes the same port: clients that are connected go on.
        self.options = replace(self.options, listen=self._bootstrap)
        self._running = running
        return self

    def stop(self) -> None:
        """Stop cleanly; the folder stays if it was given."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """End the broker's process with kill -9, for tests of what happens then; start() finds what was there."""
        running, self._running = self._running, None
        if not isinstance(running, _Process):
            raise UsageError("only a running broker in a process of its own can be killed")
        running.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._remove_folder is not None:
            self._remove_folder()


class _Process:
    """A broker in a child process."""

    def __init__(self, options: BrokerOptions) -> None:
        command = [sys.executable, "-m", "anabranch.broker.child"]
        # In a process group of its own: Ctrl-C in a terminal is for the one who started us, who then stops us.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        self.pid: int | None = self._process.pid
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(options)) + "\n")
        self._process.stdin.flush()

    def wait_for_address(self) -> str:
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_S_MAX, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line.startswith("listening on "):
            self._close()
            code = self._process.wait()
            raise PeerError(f"the broker did not start (exit code {code}); what it said stands on standard error")
        return line.removeprefix("listening on ").strip()

    def stop(self) -> None:
        self._close()  # the child stops when its standard input ends
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerError(
                f"the broker did not stop within {STOP_S_MAX:g} s and was killed; please report this"
            ) from None

    def kill(self) -> None:
        self._process.kill()
        self._close()
        self._process.wait()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class _Thread:
    """A broker in a thread of this process, on an event loop of its own."""

    pid: int | None = None

    def __init__(self, options: BrokerOptions) -> None:
        from anabranch.broker.main import Stop

        self._options = options
        self._stop: Stop = Stop()
        self._listening = threading.Event()
        self._address = ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-broker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from anabranch.broker.main import run

        try:
            run(self._options, self._stop, self._announce)
        except BaseException as error:
            self._error = error
        finally:
            self._listening.set()

    def _announce(self, host: str, port: int) -> None:
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._listening.set()

    def wait_for_address(self) -> str:
        self._listening.wait(START_S_MAX)
        if self._error is not None:
            raise self._error
        if not self._address:
            raise PeerError(f"the broker did not start within {START_S_MAX:g} s; please report this")
        return self._address

    def stop(self) -> None:
        self._stop.request()
        self._thread.join(STOP_S_MAX)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise PeerError(f"the broker did not stop within {STOP_S_MAX:g} s; please report this")

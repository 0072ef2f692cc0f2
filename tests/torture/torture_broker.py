"""A broker as a process of its own, with what the suite needs to see of it: log lines, memory, time to start."""

import json
import resource
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from torture_wire import Wire

from anabranch.core.options import BrokerOptions

START_S_MAX = 60.0
PORTS = (20_000, 32_000)
"""Below the range that the system takes for outgoing connections: clients that knock on the port of a dead broker must
not get it for themselves (TCP connects a socket to itself if both ends are given the same port)."""


class BrokerProcess:
    """A broker on one folder and port, over any number of starts.

    It ends when this process does, also by kill -9: its standard input is a pipe that only we hold.
    """

    def __init__(self, data_dir: Path, logs: Path, *, open_files_max: int | None = None, **options: Any) -> None:
        self.options: dict[str, Any] = {"listen": f"127.0.0.1:{free_port()}", "log_level": "info", **options}
        self.data_dir = data_dir
        self.bootstrap = str(self.options["listen"])
        self.logs = logs
        self._descriptors = open_files_max
        self._process: subprocess.Popen[str] | None = None
        self._log_start = 0
        self._begun_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self) -> float:
        """Start; answer the seconds from the process's start to the first answer to Metadata."""
        self.begin()
        return self.wait_until_answering()

    def begin(self) -> None:
        """Start the process and do not wait for it."""
        assert self._process is None, "the broker is running already"
        self._log_start = self.logs.stat().st_size if self.logs.exists() else 0
        self._begun_at = time.monotonic()
        with self.logs.open("a") as log:
            command = [sys.executable, "-m", "anabranch.broker.child"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        if self._descriptors is not None:  # before it is told its options: it asks for the limit after
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(BrokerOptions(data_dir=str(self.data_dir), **self.options))) + "\n")
        self._process.stdin.flush()

    def wait_until_answering(self) -> float:
        assert self._process is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_S_MAX, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        watchdog.join()
        assert line.startswith("listening on "), f"the broker did not start:\n{self.log_lines()}"
        with Wire(self.bootstrap) as wire:
            wire.metadata()
        return time.monotonic() - self._begun_at

    def stop(self) -> None:
        """Stop cleanly (SIGTERM)."""
        process = self._take()
        process.terminate()
        try:
            code = process.wait(START_S_MAX)
        finally:
            process.kill()
            _close(process)
        assert code == 0, f"the broker ended with {code}:\n{self.log_lines()}"

    def kill(self) -> None:
        """End it with kill -9."""
        process = self._take()
        process.kill()
        process.wait()
        _close(process)

    def log_lines(self) -> str:
        """Answer what the broker has logged since its last start."""
        with self.logs.open() as log:
            log.seek(self._log_start)
            return log.read()

    def resident_bytes(self) -> int:
        """Answer the broker's memory (VmRSS)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024

    def _take(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "the broker is not running"
        process, self._process = self._process, None
        return process


def free_port() -> int:
    """Find a port that nobody listens on and that no outgoing connection will be given."""
    start = time.monotonic_ns() % (PORTS[1] - PORTS[0])
    for step in range(PORTS[1] - PORTS[0]):
        port = PORTS[0] + (start + step) % (PORTS[1] - PORTS[0])
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def _close(process: "subprocess.Popen[str]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()

"""Runs Apache Kafka beside the tests: one KRaft node on loopback, its jars fetched once by Maven into `.cache/kafka`.

    python tests/kafka/apache_kafka.py COMMAND ...

starts it, runs the command with its address in ANABRANCH_TEST_BOOTSTRAP, stops it, and ends with the command's exit
code. Needs Java 17 or newer and Maven.
"""

from __future__ import annotations

import base64
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final, Self

BOOTSTRAP_VARIABLE: Final = "ANABRANCH_TEST_BOOTSTRAP"
HERE: Final = Path(__file__).resolve().parent
CACHE: Final = HERE.parent.parent / ".cache" / "kafka"
PR_SET_PDEATHSIG: Final = 1
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 20.0
JARS_MIN: Final = 50
"""The whole of it are about a hundred; an interrupted download is made again."""

PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
num.partitions=4
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
"""


class KafkaMissing(Exception):
    """Apache Kafka cannot be run here; the message says what to install."""


class ApacheKafka:
    """One node that lives as long as the `with` block, in a temporary folder, on free ports."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-kafka-"))
        self._port, self._controller = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._java = _program("java", "install Java 17 or newer")
        self._classpath = f"{fetched_jars()}/*"
        self._format()

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        """Where it says what it does."""
        return self._folder / "kafka.out"

    def start(self) -> None:
        """Start it, and return when clients can connect."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._java, "-Xms512m", "-Xmx512m", "-cp", self._classpath, "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no other threads yet
            )
        deadline = time.monotonic() + START_S_MAX
        while not _listens(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-2000:]
                raise KafkaMissing(f"Apache Kafka did not start; it said:\n{said}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, cleanly or with SIGKILL; `start` finds what was there."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _format(self) -> None:
        text = PROPERTIES.format(port=self._port, controller=self._controller, folder=self._folder)
        self._properties.write_text(text, encoding="ascii")
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        done = subprocess.run(
            [self._java, "-cp", self._classpath, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KafkaMissing(f"Apache Kafka's StorageTool failed:\n{done.stdout}{done.stderr}")


def fetched_jars() -> Path:
    """Answer the folder with Kafka's jars; fetch them the first time."""
    libraries = CACHE / "libs"
    if len(list(libraries.glob("*.jar"))) >= JARS_MIN and (CACHE / "complete").exists():
        return libraries
    maven = _program("mvn", "install Maven")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE.parent / ".gitignore").write_text("*\n", encoding="ascii")
    shutil.copy(HERE / "pom.xml", CACHE / "pom.xml")
    sys.stdout.write("fetching Apache Kafka 3.9.1 by Maven (56 MB, once)\n")
    sys.stdout.flush()
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
    if subprocess.run(command, cwd=CACHE, check=False).returncode != 0:
        raise KafkaMissing("Maven could not fetch Apache Kafka; what it said stands above")
    (CACHE / "complete").touch()
    return libraries


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _program(name: str, fix: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise KafkaMissing(f"no `{name}` on the path: {fix}")
    return found


def _free_ports(count: int) -> list[int]:
    """Find ports outside the range of outgoing connections: a client that reconnects must not be given its own."""
    low = 20_000 + os.getpid() % 10_000
    found: list[int] = []
    for port in range(low, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise KafkaMissing("no free port between 20,000 and 32,000")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main(command: list[str]) -> int:
    """Run a command with Kafka beside it."""
    if not command:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # else nobody would stop Kafka
    try:
        with ApacheKafka() as kafka:
            sys.stdout.write(f"Apache Kafka 3.9.1 listens on {kafka.bootstrap}\n")
            sys.stdout.flush()
            return subprocess.run(
                command, env={**os.environ, BOOTSTRAP_VARIABLE: kafka.bootstrap}, check=False
            ).returncode
    except KafkaMissing as error:
        sys.stderr.write(f"{error}\n")
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

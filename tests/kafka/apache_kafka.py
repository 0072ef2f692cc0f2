"""Runs Apache Kafka beside the tests: one KRaft node on loopback, its jars fetched once by Maven into `.cache/kafka`.

    python tests/kafka/apache_kafka.py COMMAND ...

starts it, runs the command with its address in ANABRANCH_TEST_BOOTSTRAP, stops it, and ends with the command's exit
code. Needs Java 17 or newer and Maven.
"""

from __future__ import annotations

import base64
import os
import re
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
VERSION: Final = "3.9.1"
JAVA_MIN: Final = 17
DYING_WITH_PARENT: Final = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
os.execv(sys.argv[1], sys.argv[1:])
"""
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


class KafkaFailed(Exception):
    """Apache Kafka is here and did not start; the message says what it said."""


class ApacheKafka:
    """One node that lives as long as the `with` block, in a temporary folder, on free ports."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-kafka-"))
        self._port, self._controller = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._java = _java()
            self._classpath = f"{fetched_jars()}/*"
            self._format()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

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
        arguments = ["-Xms512m", "-Xmx512m", "-cp", self._classpath, "kafka.Kafka", str(self._properties)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DYING_WITH_PARENT, self._java, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        deadline = time.monotonic() + START_S_MAX
        while not _listens(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-2000:]
                raise KafkaFailed(f"Apache Kafka did not start; it said:\n{said}")
            time.sleep(0.1)

    @property
    def pid(self) -> int:
        """Its process, for whoever wants to freeze it."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def kill(self) -> None:
        """End it with SIGKILL; `start` finds what was there."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it cleanly; `start` finds what was there."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
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
        arguments = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(self._properties)]
        done = subprocess.run(
            [self._java, "-cp", self._classpath, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KafkaFailed(f"Apache Kafka's StorageTool failed:\n{done.stdout}{done.stderr}")


def fetched_jars() -> Path:
    """Answer the folder with Kafka's jars; fetch them the first time."""
    libraries = CACHE / "libs"
    if len(list(libraries.glob("*.jar"))) >= JARS_MIN and (CACHE / "complete").exists():
        return libraries
    maven = _program("mvn", "install Maven (Debian: apt-get install maven); it is needed once, to fetch Kafka")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE.parent / ".gitignore").write_text("*\n", encoding="ascii")
    shutil.copy(HERE / "pom.xml", CACHE / "pom.xml")
    say(f"fetching Apache Kafka {VERSION} by Maven into {CACHE} (56 MB, once)")
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
    if subprocess.run(command, cwd=CACHE, check=False).returncode != 0:
        raise KafkaMissing("Maven could not fetch Apache Kafka: what it said stands above; is the network there?")
    (CACHE / "complete").touch()
    return libraries


def _cluster_id() -> str:
    """Make an id as Kafka does; one that begins with a dash would be taken for an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not made.startswith("-"):
            return made


def _java() -> str:
    """Answer the path of a Java that is new enough: JAVA_HOME's, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    fix = f"install Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
    java = str(Path(home) / "bin" / "java") if home else _program("java", fix)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise KafkaMissing(f"{java} cannot be run ({error.strerror}): {fix}") from None
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise KafkaMissing(f"{java} is too old for Apache Kafka {VERSION}: {fix}; it said:\n{said}")
    return java


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


def run_beside(command: list[str]) -> int:
    """Run a command with Kafka beside it, and answer its exit code; 3 if Kafka cannot be run here."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # else nobody would stop Kafka
    try:
        with ApacheKafka() as kafka:
            say(f"Apache Kafka {VERSION} listens on {kafka.bootstrap}")
            return subprocess.run(
                command, env={**os.environ, BOOTSTRAP_VARIABLE: kafka.bootstrap}, check=False
            ).returncode
    except (KafkaMissing, KafkaFailed) as error:
        sys.stderr.write(f"{error}\n")
        return 3


def say(line: str) -> None:
    """Tell how it goes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    sys.exit(run_beside(sys.argv[1:]))

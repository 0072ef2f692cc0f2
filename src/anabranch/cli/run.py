"""`anabranch run`: import a pipeline, run it, show how it is doing, and stop it cleanly.

Signals: the first one stops (no new record begins, begun ones have `drain_s` to end), a second one forces. Both only
set something going; this thread waits for the run to end, and looks at it a few times a second to show it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from anabranch.cli.arguments import Parser
from anabranch.cli.broker import as_json, as_text
from anabranch.cli.config import kafka_settings, kafka_sources, read_file, resolve, spark_conf
from anabranch.cli.news import News
from anabranch.cli.status import Rate, parse_status, status_line, summary_line
from anabranch.cli.status_line import DRAW_S, LiveLine, PlainLines
from anabranch.cli.target import load_pipeline, user_frames
from anabranch.core.errors import Halted, HandlerError, UsageError
from anabranch.core.options import KafkaOptions, options_of
from anabranch.core.run_options import RunOptions
from anabranch.kafka.errors import GIVEN_IN_PYTHON

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from anabranch.cli.status_line import Display
    from anabranch.pipeline.builder import Pipeline
    from anabranch.runtime.run import Run

EXIT_FORCED = 130


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which Kafka is meant, and librdkafka's settings."""

    bootstrap: str
    settings: Mapping[str, str]


EXAMPLES = (
    "anabranch run app:billing                        `billing` of app.py in this folder, on Spark",
    "anabranch run app:billing --until end            what is there, then exit",
    "anabranch run app:billing --master spark://host:7077 --members 8",
    "anabranch run app:billing --engine async         in one process, without Spark",
    "anabranch run app:billing -b broker.lan:9092 -X security.protocol=SSL",
    "ANABRANCH_RUN_ENGINE=async anabranch run app:billing --print-config",
)


def run(words: list[str]) -> int:
    """Run a pipeline until its end, a signal, or an error; return the exit code."""
    typed = _parser().read(words)
    file = read_file(typed.config)
    options = resolve(RunOptions, _flags(typed), os.environ, file)
    kafka = resolve(KafkaOptions, {"bootstrap": typed.bootstrap}, os.environ, file)
    passed = kafka_settings(file, typed.kafka)
    conf = spark_conf(file, typed.conf)
    if typed.print_config:
        settings = (*options.settings, *kafka.settings)
        sys.stdout.write(
            as_json(settings) if typed.json else as_text(settings) + _spelled("kafka", passed) + _spelled("conf", conf)
        )
        return 0
    if typed.target is None:
        raise UsageError("name the pipeline as MODULE:PIPELINE, as in `anabranch run app:billing`")
    _refuse_spark_flags(options.options, typed.conf)
    pipeline = load_pipeline(typed.target)
    try:
        return _run_shown(pipeline, options.options, Cluster(kafka.options.bootstrap, passed), conf)
    except UsageError as error:  # its words are those of Python; here a flag or a file is meant
        raise _placed(error, kafka_sources(file, typed.kafka)) from error


def _run_shown(pipeline: Pipeline[Any], options: RunOptions, cluster: Cluster, conf: Mapping[str, str]) -> int:
    from anabranch.cli.log_lines import set_up_logging
    from anabranch.runtime.signals import stopping

    with ExitStack() as stack:
        display: Display = PlainLines(sys.stderr)
        if sys.stderr.isatty():
            live = LiveLine(sys.stderr)
            stack.enter_context(live.above())
            display = live
        set_up_logging(options.log_level, options.log_format)
        if options.log_level != "debug":  # the library complains of every attempt to connect; we say it once
            logging.getLogger("anabranch.kafka.librdkafka").setLevel(logging.CRITICAL)
        watch = Watch(_started(pipeline, options, cluster, conf), display)
        with stopping(watch):
            code = watch.until_ended()
    if code == EXIT_FORCED:
        _leave_at_once(code)
    return code


def _started(pipeline: Pipeline[Any], options: RunOptions, cluster: Cluster, conf: Mapping[str, str]) -> Run:
    sparks = _spark_options(options, conf)
    try:
        return pipeline.start(
            engine=options.engine,
            bootstrap=cluster.bootstrap,
            kafka=cluster.settings,
            until=options.until,
            state_dir=options.state_dir,
            drain_s=options.drain_s,
            grace_s=options.grace_s,
            session_timeout_s=options.session_timeout_s,
            reach_s=options.reach_s,
            on_lost_to_retention=options.on_lost_to_retention,
            on_beyond_end=options.on_beyond_end,
            **sparks,
        )
    except UsageError as error:  # its words are those of Python; here a flag is meant
        raise UsageError(re.sub(r"\w+\(engine=(['\"])(\w+)\1\)", r"--engine \2", str(error))) from error


def _spark_options(options: RunOptions, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return what only Spark takes."""
    if options.engine != "spark":
        return {}
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a JVM that goes away is told in our words
    return {"master": options.master, "members": options.members or None, "conf": conf}


def _refuse_spark_flags(options: RunOptions, typed_conf: list[str]) -> None:
    """Refuse what only Spark takes, rather than ignore it; [spark] may stand in a file that serves several runs."""
    given = {"--master": options.master, "--members": options.members, "--conf": typed_conf}
    for flag, value in given.items():
        if value and options.engine != "spark":
            raise UsageError(f"{flag} is for --engine spark, and this is --engine {options.engine}: leave one out")


def _placed(error: UsageError, sources: Mapping[str, str]) -> UsageError:
    """Return the error with the places where settings of librdkafka were really given."""
    text = str(error)
    for name, source in sources.items():
        text = text.replace(f"{name} (given in {GIVEN_IN_PYTHON})", f"{name} (given in {source})")
    return UsageError(text)


def _leave_at_once(code: int) -> NoReturn:
    """End the process without waiting for threads and tasks of handlers that do not end: this is what forcing means."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Watch:
    """Looks at a run a few times a second until it has ended; what stops the run goes through here."""

    def __init__(self, running: Run, display: Display) -> None:
        """Look at a run that has started."""
        self._run = running
        self._display = display
        self._started_at = self._shown_at = time.monotonic()
        self._rate = Rate()
        self._news = News()
        self._stop_asked = self._stop_told = False

    def stop(self) -> None:
        """Begin to stop. Called by a signal handler: nothing is printed here, it might interrupt a print."""
        self._stop_asked = True
        self._run.stop()

    def terminate(self) -> None:
        """Force the end; called by a signal handler."""
        self._run.terminate()

    def until_ended(self) -> int:
        """Show the run until it has ended, then sum it up; raise what ended it, if that was an error."""
        try:
            while not self._run.join(DRAW_S):
                self._tell_stop()
                self._show(time.monotonic())
        except (Halted, HandlerError) as error:
            if error.__cause__ is not None:  # raised by code of the user's: he wants to see where
                error.add_note(user_frames(error.__cause__, Path.cwd()))
            raise
        finally:
            self._display.end()
            self._sum_up()
        return int(self._run.result.exit_code)

    def _tell_stop(self) -> None:
        if self._stop_asked and not self._stop_told:
            self._stop_told = True
            self._display.tell("draining, Ctrl-C again to force")

    def _show(self, now: float) -> None:
        if now - self._shown_at < self._display.interval_s:
            return
        self._shown_at = now
        status = parse_status(self._run.statistics())
        if status.state == "ended":
            return
        for line in self._news.of(status, now):
            self._display.tell(line)
        self._display.show(status_line(status, self._rate.observe(status.settled, now)), status.signature, now)

    def _sum_up(self) -> None:
        status = parse_status(self._run.statistics())
        error = self._run.result.error
        if error is not None and not isinstance(error, Halted) and not status.settled:
            return  # it never got to work: the error says it all
        self._display.tell(summary_line(status, time.monotonic() - self._started_at, self._run.result.reason))


def _flags(typed: argparse.Namespace) -> dict[str, object]:
    flags: dict[str, object] = {each.name: getattr(typed, each.name) for each in options_of(RunOptions)}
    if typed.verbose and flags["log_level"] is None:
        flags["log_level"] = "debug"
    return flags


_SECRET = ("password", "secret", "key.pem", "token", "sasl.jaas", "oauthbearer.config")


def _spelled(word: str, passed: Mapping[str, str]) -> str:
    """Return settings of librdkafka or Spark, those that are secret without their value."""
    shown = {name: "(hidden)" if any(word in name for word in _SECRET) else value for name, value in passed.items()}
    return "".join(f"{word} {name} = {value}\n" for name, value in sorted(shown.items()))


def _parser() -> Parser:
    parser = Parser(
        "run",
        "MODULE:PIPELINE [OPTION]...",
        "Run a pipeline: MODULE is imported from the current folder, PIPELINE is the name\n"
        "it has there. On a terminal a line shows how it is doing. Ctrl-C (or SIGTERM)\n"
        "stops it: what has begun may end, progress is committed; a second one forces.\n\n"
        "Each option can also be set in the environment (--drain-s is\n"
        "ANABRANCH_RUN_DRAIN_S) or in a file (drain_s under [run] in anabranch.toml).\n\n"
        "Exit codes: 0 done or cleanly stopped, 1 internal, 2 usage, 3 broker\n"
        "unreachable, 4 halted or refused by the cluster, 5 drain incomplete,\n"
        "130 forced.",
        EXAMPLES,
    )
    parser.add_argument("target", metavar="MODULE:PIPELINE", nargs="?", help="As in app:billing.")
    parser.add_table(options_of(RunOptions))
    parser.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[],
        help="On Spark: a setting of its own, as in spark.driver.memory=2g; repeatable.",
    )  # fmt: skip
    parser.add_argument(
        "--print-config", action="store_true", help="Print every option in force with its source, and exit."
    )
    parser.add_argument("--json", action="store_true", help="With --print-config: as JSON.")
    parser.add_client_options()
    return parser

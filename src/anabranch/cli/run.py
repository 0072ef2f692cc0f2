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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from anabranch.cli.arguments import Parser
from anabranch.cli.broker import as_json, as_text
from anabranch.cli.config import kafka_settings, read_file, resolve
from anabranch.cli.news import News
from anabranch.cli.status import Rate, parse_status, status_line, summary_line
from anabranch.cli.status_line import DRAW_S, LiveLine, PlainLines
from anabranch.cli.target import load_pipeline, user_frames
from anabranch.core.errors import Halted, HandlerError, UsageError
from anabranch.core.options import KafkaOptions, options_of
from anabranch.core.run_options import RunOptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from anabranch.cli.status_line import Display
    from anabranch.pipeline.builder import Pipeline
    from anabranch.runtime.run import Run

EXIT_FORCED = 130

EXAMPLES = (
    "anabranch run app:billing --engine async         `billing` of app.py in this folder",
    "anabranch run app:billing --engine async --until end     what is there, then exit",
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
    if typed.print_config:
        settings = (*options.settings, *kafka.settings)
        sys.stdout.write(as_json(settings) if typed.json else as_text(settings) + _spelled(passed))
        return 0
    if typed.target is None:
        raise UsageError("name the pipeline as MODULE:PIPELINE, as in `anabranch run app:billing`")
    pipeline = load_pipeline(typed.target)
    return _run_shown(pipeline, options.options, kafka.options.bootstrap, passed)


def _run_shown(pipeline: Pipeline[Any], options: RunOptions, bootstrap: str, kafka: Mapping[str, str]) -> int:
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
        watch = Watch(_started(pipeline, options, bootstrap, kafka), display)
        with stopping(watch):
            code = watch.until_ended()
    if code == EXIT_FORCED:
        _leave_at_once(code)
    return code


def _started(pipeline: Pipeline[Any], options: RunOptions, bootstrap: str, kafka: Mapping[str, str]) -> Run:
    try:
        return pipeline.start(
            engine=options.engine,
            bootstrap=bootstrap,
            kafka=kafka,
            until=options.until,
            state_dir=options.state_dir,
            drain_s=options.drain_s,
            grace_s=options.grace_s,
            session_timeout_s=options.session_timeout_s,
        )
    except UsageError as error:  # its words are those of Python; here a flag is meant
        raise UsageError(re.sub(r"\w+\(engine=(['\"])(\w+)\1\)", r"--engine \2", str(error))) from error


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


def _spelled(passed: Mapping[str, str]) -> str:
    """Return librdkafka's settings, those that are secret without their value."""
    shown = {name: "(hidden)" if any(word in name for word in _SECRET) else value for name, value in passed.items()}
    return "".join(f"kafka {name} = {value}\n" for name, value in sorted(shown.items()))


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
        "unreachable, 4 halted, 5 drain incomplete, 130 forced.",
        EXAMPLES,
    )
    parser.add_argument("target", metavar="MODULE:PIPELINE", nargs="?", help="As in app:billing.")
    parser.add_table(options_of(RunOptions))
    parser.add_argument(
        "--print-config", action="store_true", help="Print every option in force with its source, and exit."
    )
    parser.add_argument("--json", action="store_true", help="With --print-config: as JSON.")
    parser.add_client_options()
    return parser

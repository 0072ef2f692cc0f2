"""Where log lines go: the stdlib's `anabranch.*` loggers, to stderr, as text or as one JSON object a line."""

from __future__ import annotations

import logging
import sys
import time


class TextLines(logging.Formatter):
    """`2031-05-04T12:00:00.123Z INFO anabranch.broker: message`."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        """Write time in UTC with milliseconds, so that lines of several machines can be merged."""
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


class JsonLines(TextLines):
    """One JSON object a line: time, level, logger, message, and exception when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        import json  # those who log text do not pay for it

        line = {
            "time": f"{self.formatTime(record, self.datefmt)}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(level: str, line_format: str) -> None:
    """Send the lines of our loggers to stderr, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if line_format == "json" else TextLines())
    logger = logging.getLogger("anabranch")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())

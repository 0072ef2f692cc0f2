"""A broker in a process of its own, on behalf of the one that started it (`Broker`).

Its options come as one line of JSON on standard input. When standard input ends, whoever started it is gone, also by
kill -9, and the broker stops: no test run leaves one behind. (The kernel's parent-death signal would fire when the
starting *thread* ends.)
"""

import json
import logging
import os
import signal
import sys
import threading

from anabranch.broker.main import serve
from anabranch.core.errors import AnabranchError
from anabranch.core.options import BrokerOptions

EXIT_USAGE = 2


def main() -> int:
    """Serve until told to stop or orphaned."""
    options = BrokerOptions(**json.loads(sys.stdin.readline()))
    logging.basicConfig(
        level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    threading.Thread(target=_stop_when_orphaned, name="anabranch-orphan", daemon=True).start()
    try:
        return serve(options)
    except AnabranchError as error:
        sys.stderr.write(f"anabranch: error: {error}\n")
        return EXIT_USAGE


def _stop_when_orphaned() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

"""`make test-kafka`: the contract suite and the holes of fault 1 on Apache Kafka, from nothing to a verdict.

    python tests/kafka/run.py [pytest's options]

Fetches Kafka by Maven the first time, formats and starts one node, runs the tests on the engines of one process with
two workers (`-k spark` for Spark's), stops it, and ends with pytest's exit code. The table of promises stands at its
end. Exit code 3: Kafka cannot be run here, and a sentence says what to install.
"""

from __future__ import annotations

import sys

from apache_kafka import HERE, run_beside

TESTS = HERE.parent
WORKERS = 2

if __name__ == "__main__":
    suites = [str(TESTS / "contract"), str(TESTS / "kafka")]
    pytest = [sys.executable, "-m", "pytest", "-n", str(WORKERS), "--dist", "loadgroup", "-p", "no:cacheprovider", "-q"]
    sys.exit(run_beside([*pytest, "-k", "not spark", *suites, *sys.argv[1:]]))

"""How pipelines reach members: shipped by one real process, loaded by another that knows nothing of it.

The driver's program writes shipments to a file; the member's program, started in another folder, loads each, runs its
steps on a value, and tells what it found. No Spark is needed: pickles are all that it would carry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from anabranch.spark.module_archive import archive, files_of
from anabranch.spark.modules import installed_folders, is_installed

DRIVER = """
import pickle
from anabranch.spark.shipping import ship

def send(*pipelines):
    with open("shipments", "wb") as file:
        pickle.dump([ship(each) for each in pipelines], file)
"""

MEMBER = """
import json, pickle, sys
from anabranch.core.errors import UsageError

def look(shipment):
    try:
        pipeline = shipment.load()
    except UsageError as error:
        return {"error": str(error)}
    step = pipeline.plan().steps[-1]
    return {
        "pipeline": repr(pipeline),
        "module": step.handler.__module__,
        "result": step.handler(1),
        "named": shipment.name is not None,
    }

with open(sys.argv[1], "rb") as file:
    shipments = pickle.load(file)
print(json.dumps([look(each) for each in shipments]))
"""

MODELS = """
import threading
from dataclasses import dataclass

LOCK = threading.Lock()  # nobody can pickle it

@dataclass
class Order:
    cents: int
"""


class Place:
    """A folder with the user's files, and a folder elsewhere where members run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "user"
        self.elsewhere = folder / "elsewhere"
        for each in (self.folder, self.elsewhere):
            each.mkdir()
        self.write("models.py", MODELS)
        self.write("sending.py", DRIVER)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def drive(self, *words: str, feed: str | None = None) -> subprocess.CompletedProcess[str]:
        return _python(words, self.folder, feed)

    def loaded(self) -> list[dict[str, Any]]:
        done = _python(("-c", MEMBER, str(self.folder / "shipments")), self.elsewhere)
        assert done.returncode == 0, done.stderr
        answer: list[dict[str, Any]] = json.loads(done.stdout)
        return answer


def _python(words: tuple[str, ...], folder: Path, feed: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, input=feed, timeout=60
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


APP = """
import sys
import threading
from anabranch import Pipeline
from models import LOCK, Order
from sending import send

OWN = threading.Lock()

def charge(order: Order) -> int:
    with OWN, LOCK:
        return 7

billing = Pipeline("billing").read("orders", Order).filter(lambda order: order.cents > 0).process(charge).write("out")

def made(more):
    def handler(order: Order) -> int:
        with OWN, LOCK:
            return 10 + more
    return Pipeline("made").read("orders", Order).map(lambda order: order).process(handler)

if __name__ == "__main__":
    late = Pipeline("late").read(sys.argv[1], Order).process(charge)
    send(billing, made(1), late)
"""


def test_a_script_is_sent_as_its_file_and_imported_under_the_file_s_name(place: Place) -> None:
    """At its top level, in a function, or set in its last lines: locks and clients are each member's own."""
    place.write("app.py", APP)
    done = place.drive("app.py", "orders")
    assert done.returncode == 0, done.stderr
    named, made, late = place.loaded()
    assert named["pipeline"] == (
        "<Pipeline 'billing': read orders as Order → filter <lambda> → process charge → write out>"
    )
    assert (named["module"], named["result"], named["named"]) == ("app", 7, True)
    assert (made["module"], made["result"], made["named"]) == ("app", 11, False)
    assert (late["module"], late["result"]) == ("app", 7)


def test_a_module_is_imported_by_its_name(place: Place) -> None:
    """Also one that was started with `python -m`, and one of a package."""
    place.write("shop/__init__.py", "")
    place.write("shop/app.py", APP)
    done = place.drive("-c", "from shop.app import billing, made; from sending import send; send(billing, made(2))")
    assert done.returncode == 0, done.stderr
    assert [(each["module"], each["result"]) for each in place.loaded()] == [("shop.app", 7), ("shop.app", 12)]
    assert place.drive("-m", "shop.app", "orders").returncode == 0
    assert [each["module"] for each in place.loaded()] == ["shop.app"] * 3


def test_what_was_typed_travels_whole(place: Place) -> None:
    """A notebook has no file: functions, classes and the values they use go along."""
    typed = """
from anabranch import Pipeline
from sending import send
MORE = 5
class Order:
    pass
def decoded(data: bytes) -> Order:
    return Order()
def handler(order: Order) -> int:
    return MORE + len(Order.__name__)
send(Pipeline("typed").read("orders", decode=decoded).process(handler))
"""
    done = place.drive("-", feed=typed)
    assert done.returncode == 0, done.stderr
    assert [each["result"] for each in place.loaded()] == [10]


def test_a_pipeline_that_differs_where_it_is_imported_travels_by_value(place: Place) -> None:
    """A topic with a random name, say: what the driver has is what runs."""
    place.write(
        "app.py",
        "import secrets\nfrom anabranch import Pipeline\ndef handler(value): return 3\n"
        "billing = Pipeline('billing').read('orders-' + secrets.token_hex(8)).process(handler)\n",
    )
    done = place.drive("-c", "import app; from sending import send; send(app.billing); print(repr(app.billing))")
    (found,) = place.loaded()
    assert (found["pipeline"], found["result"]) == (done.stdout.strip(), 3)


def test_one_that_differs_and_cannot_be_sent_is_refused_with_a_sentence(place: Place) -> None:
    """And the sentence says how to make it."""
    place.write(
        "app.py",
        "import secrets, threading\nfrom anabranch import Pipeline\nfrom functools import partial\n"
        "def handler(lock, value): return 3\n"
        "billing = Pipeline('billing').read('t-' + secrets.token_hex(8)).process(partial(handler, threading.Lock()))\n",
    )
    assert place.drive("-c", "import app; from sending import send; send(app.billing)").returncode == 0
    (found,) = place.loaded()
    assert found["error"].startswith("app:billing is <Pipeline 'billing': read t-")
    assert "make it at the top level of its module" in found["error"]


def test_what_has_no_name_and_cannot_be_pickled_is_refused_at_the_start(place: Place) -> None:
    """Before anything is opened."""
    done = place.drive(
        "-c",
        "import threading; from functools import partial; from anabranch import Pipeline; from sending import send\n"
        "send(Pipeline('billing').read('t').process(partial(print, threading.Lock())))",
    )
    assert "pipeline 'billing' cannot be sent to Spark's members: cannot pickle '_thread.lock'" in done.stderr
    assert "at the top level of a module" in done.stderr


def test_a_module_or_package_that_a_member_lacks_is_named(place: Place) -> None:
    """Fault 25: the sentence says what to install, and where."""
    place.write(
        "app.py",
        "from anabranch import Pipeline\nfrom sending import send\n"
        "if __name__ != '__main__': import no_such_package\n"
        "billing = Pipeline('billing').read('orders').process(print)\n"
        "if __name__ == '__main__': send(billing)\n",
    )
    assert place.drive("app.py").returncode == 0
    (found,) = place.loaded()
    assert found["error"].startswith("app:billing cannot be loaded on ")
    assert sys.executable in found["error"]
    assert "No module named 'no_such_package'; install no_such_package for that Python" in found["error"]


def test_a_file_that_runs_itself_when_it_is_imported_is_told_the_line_that_helps(place: Place) -> None:
    """Else each member would start a run of its own."""
    place.write(
        "app.py",
        "from anabranch import Pipeline\nfrom sending import send\n"
        "billing = Pipeline('billing').read('orders').process(print)\n"
        "send(billing) if __name__ == '__main__' else billing.run(engine='async')\n",
    )
    assert place.drive("app.py").returncode == 0
    (found,) = place.loaded()
    assert 'put .run() under `if __name__ == "__main__":`' in found["error"]


_RUN_AS_MAIN = """
import sys
sys.path.append(".")
sys.argv = ["queue.py", "orders"]
import __main__
__main__.__file__ = "queue.py"
exec(compile(open("queue.py").read(), "queue.py", "exec"), vars(__main__))
"""


def test_a_script_with_the_name_of_a_known_module_does_not_hide_it(place: Place) -> None:
    """`queue.py` as a script must not become `queue` in a member."""
    place.write("queue.py", APP)
    done = place.drive("-P", "-c", _RUN_AS_MAIN)
    assert done.returncode == 0, done.stderr
    assert [each.get("module") for each in place.loaded()] == ["queue__script"] * 3


def test_an_archive_holds_whole_packages_and_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    """On a cluster: also modules that a handler imports later, and data beside them."""
    package = tmp_path / "shop"
    (package / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "app.py", "words.txt", "__pycache__/app.pyc"):
        (package / name).write_text(name)
    (tmp_path / "models.py").write_text("x = 1")
    modules = [("shop", package / "__init__.py"), ("shop.app", package / "app.py"), ("models", tmp_path / "models.py")]
    data = archive(dict(files_of(modules)))
    (tmp_path / "a.zip").write_bytes(data)
    assert zipfile.ZipFile(tmp_path / "a.zip").namelist() == [
        "models.py",
        "shop/__init__.py",
        "shop/app.py",
        "shop/words.txt",
    ]
    assert archive(dict(files_of(modules))) == data


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("anabranch.core", "/src/anabranch/core/__init__.py"),
        ("pyspark", "/elsewhere/pyspark/__init__.py"),
        ("py4j.java_gateway", "/elsewhere/py4j/java_gateway.py"),
        ("shared", "/opt/spark/python/shared.py"),
        ("httpx", "/home/ada/.local/lib/python3.11/site-packages/httpx/__init__.py"),
        ("apt_pkg", "/usr/lib/python3/dist-packages/apt_pkg.py"),
        ("json", json.__file__),
    ],
)
def test_what_is_installed_is_not_the_user_s(name: str, path: str) -> None:
    """By its name or its folder: PySpark may come from SPARK_HOME, and a package from the user or the system."""
    folders = installed_folders({"SPARK_HOME": "/opt/spark"})
    assert is_installed(name, Path(path).resolve(), folders)


@pytest.mark.parametrize("name", ["app", "pyspark_jobs.app", "anabranch_jobs"])
def test_what_lies_elsewhere_is_the_user_s(name: str) -> None:
    """Also when its name begins like one of ours, and whether there is a SPARK_HOME or not."""
    path = Path("/home/ada/shop") / f"{name.replace('.', '/')}.py"
    assert not is_installed(name, path, installed_folders({}))
    assert not is_installed(name, path, installed_folders({"SPARK_HOME": "/opt/spark"}))

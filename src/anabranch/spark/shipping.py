"""How a pipeline reaches the members: by name where it has one, else by value.

A pipeline at the top level of a module is named, `app:billing`, and each member imports it: so clients and locks at the
module's top level are the member's own. A script's file is sent, and imported under the file's name, as
multiprocessing's spawn does. What has no name (made in a function, in a test, in a notebook) is sent by value; and so
is what a member finds different under its name, because the name is only set in a script's last lines, or depends on
something that members do not see.

On this machine members also get the driver's `sys.path`, arguments and working folder. On a cluster the modules that
the driver has loaded, and that are neither installed nor Python's own, are sent beside the pipeline.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import UsageError
from anabranch.pipeline.importing import importing
from anabranch.spark.modules import MAIN, ModuleFile, Modules, ShippedModules, user_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch.pipeline.builder import Pipeline
    from anabranch.spark.session import Session

VALUE_BYTES_MAX: Final = 1024 * 1024
"""Of a pipeline that has a name, and is sent by value beside it. One without a name has no choice."""

_LOADED: Final[set[str]] = set()
"""The user's modules of the run that this process serves, if it is a Python worker of Spark's."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process on the driver's machine must share with it to find the same files."""

    path: tuple[str, ...]
    arguments: tuple[str, ...]
    folder: str

    @classmethod
    def of_this_process(cls) -> Surroundings:
        """Return what holds here."""
        return cls(tuple(os.path.abspath(each) for each in sys.path), tuple(sys.argv), os.getcwd())  # noqa: PTH100, PTH109

    def enter(self) -> None:
        """Make it hold in this process, which is Spark's and belongs to the run."""
        sys.path[:] = [*self.path, *(each for each in sys.path if each not in self.path)]
        sys.argv[:] = self.arguments
        with suppress(OSError):  # it has been removed
            os.chdir(self.folder)


@dataclass(frozen=True, slots=True)
class Shipment:
    """A pipeline on its way to members. Pickled by Spark, between processes of one run."""

    described: str
    """What `repr` says of the pipeline: how a member knows that it has found the same one."""
    name: tuple[str, str] | None
    """Module and attribute."""
    value: bytes | None
    files: tuple[ModuleFile, ...] = ()
    users: tuple[str, ...] = ()
    """Modules of the user's: imported anew by each run, though Spark gives a used Python worker to the next one."""
    surroundings: Surroundings | None = None

    def load(self) -> Pipeline[Any]:
        """Return the pipeline, in a member; raise UsageError that says why it cannot be had there."""
        if self.surroundings is not None:
            self.surroundings.enter()
        ShippedModules(self.files).install()
        self._forget_earlier_runs()
        importlib.invalidate_caches()
        with importing(self._spelled):
            found = self._by_name()
            if found is not None and repr(found.without_queries()) == self.described:
                return found
            if self.value is not None:
                return self._by_value(self.value)
        raise UsageError(
            f"{self._spelled} is {found!r} where members import it, and here {self.described}: "
            "make it at the top level of its module, the same whatever the environment is, or make it in a function"
        )

    @property
    def _spelled(self) -> str:
        return "the pipeline" if self.name is None else f"{self.name[0]}:{self.name[1]}"

    def _forget_earlier_runs(self) -> None:
        for name in _LOADED:
            sys.modules.pop(name, None)
        _LOADED.clear()
        _LOADED.update(self.users)

    def _by_name(self) -> Pipeline[Any] | None:
        from anabranch.pipeline.builder import Pipeline

        if self.name is None:
            return None
        try:
            module = importlib.import_module(self.name[0])
        except Exception as error:
            raise _unloadable(self._spelled, error) from error
        found = getattr(module, self.name[1], None)
        return found if isinstance(found, Pipeline) else None

    def _by_value(self, value: bytes) -> Pipeline[Any]:
        from anabranch.spark.by_value import loads

        try:
            pipeline: Pipeline[Any] = loads(value)
        except Exception as error:
            raise _unloadable("a handler of the pipeline", error) from error
        return pipeline


def ship(pipeline: Pipeline[Any], session: Session | None = None) -> Shipment:
    """Prepare a pipeline for members of a session; on a cluster, send the user's modules ahead. May block for a second.

    Raises UsageError for a pipeline that has no name and cannot be sent by value.
    """
    modules = Modules()
    name = _name_of(pipeline, modules)
    value = _value_of(pipeline, modules, has_name=name is not None)
    users = list(user_modules())
    is_here = session is None or session.is_on_this_machine
    if session is not None and not is_here:
        from anabranch.spark.module_archive import send_modules

        send_modules(session.spark, users, session.state_dir)
    return Shipment(
        described=repr(pipeline.without_queries()),
        name=name,
        value=value,
        files=tuple(modules.files.values()),
        users=(*modules.files, *(each for each, _ in users)),
        surroundings=Surroundings.of_this_process() if is_here else None,
    )


def _name_of(pipeline: Pipeline[Any], modules: Modules) -> tuple[str, str] | None:
    """Find a module that other processes can import and that has the pipeline; a script comes last."""
    for module, attribute in sorted(_places(pipeline), key=lambda place: (place[0] == MAIN, place)):
        elsewhere = modules.name_elsewhere(module)
        if elsewhere is not None:
            return elsewhere, attribute
    return None


def _places(pipeline: Pipeline[Any]) -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", {})
        for attribute, value in list(names.items()):
            if value is pipeline:
                yield name, attribute


def _value_of(pipeline: Pipeline[Any], modules: Modules, *, has_name: bool) -> bytes | None:
    from anabranch.spark.by_value import dumps

    try:
        return dumps(pipeline.without_queries(), modules, VALUE_BYTES_MAX if has_name else None)
    except Exception as error:
        if has_name:
            return None  # what cannot be pickled is the reason why it is named
        raise UsageError(
            f"pipeline {pipeline.name!r} cannot be sent to Spark's members: {error}; make it at the top level of a "
            "module, so that they import it, or open what cannot be sent in .lifespan(…)"
        ) from error


def _unloadable(what: str, error: Exception) -> UsageError:
    where = f"on {socket.gethostname()} ({sys.executable})"
    if isinstance(error, UsageError):
        return UsageError(f"{what} cannot be loaded {where}: {error}")
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    fix = ""
    if isinstance(error, ModuleNotFoundError):
        fix = f"; install {error.name} for that Python, or send it with conf spark.submit.pyFiles"
    return UsageError(f"{what} cannot be loaded {where}: {said}{fix}")

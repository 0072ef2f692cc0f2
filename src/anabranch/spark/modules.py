"""Which module another process can import by name, and which must travel as its source.

A module can be imported by name if looking the name up on `sys.path` finds the very file that it was loaded from. What
was started as a script (`__main__`), or loaded from a file by other means, is found by no name: its source travels, and
`ShippedModules` imports it from there. What has no file at all (a notebook) has no name that means anything elsewhere.

The user's modules are those that are not installed: below no folder of packages of this Python, of its base, of the
user or of a distribution, nor of Spark, whose PySpark may be loaded from `$SPARK_HOME/python`. Ours, PySpark and Py4J
are known by name, wherever they lie: executors have their own, and a worker in use must not import them anew.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, ModuleType

MAIN: Final = "__main__"
_OURS: Final = "anabranch"
_NEVER_SENT: Final = frozenset({_OURS, "pyspark", "py4j"})
_PACKAGE_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module that travels as its source."""

    name: str
    path: str
    """Where the driver has it: for tracebacks and `__file__`."""
    source: bytes


class Modules:
    """This process's modules, by the name under which a member has them. Collects the files that must travel."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.files: dict[str, ModuleFile] = {}
        self._names: dict[str, str | None] = {}

    def name_elsewhere(self, name: str) -> str | None:
        """Return the name under which another process can import a module that is loaded here, or None."""
        if name not in self._names:
            self._names[name] = self._find(name)
        return self._names[name]

    def _find(self, name: str) -> str | None:
        module = sys.modules.get(name)
        if module is None:
            return None
        if name == MAIN:
            return self._find_main(module)
        if is_importable(name, module):
            return name
        return self._as_file(name, module)

    def _find_main(self, main: ModuleType) -> str | None:
        if main.__spec__ is not None and main.__spec__.name != MAIN:
            return main.__spec__.name  # python -m package.app
        path = _source_path(main)
        return None if path is None else self._as_file(_name_of_script(path), main)

    def _as_file(self, name: str, module: ModuleType) -> str | None:
        path = _source_path(module)
        if path is None:
            return None
        self.files[name] = ModuleFile(name, str(path), path.read_bytes())
        return name


def is_importable(name: str, module: ModuleType) -> bool:
    """Tell whether the import system would find this very module by its name."""
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.origin in {"built-in", "frozen"}:
        return True
    found = _look_up(name)
    if found is None:
        return False
    if found.origin is None:  # a folder without __init__.py
        return getattr(module, "__file__", None) is None
    here = getattr(module, "__file__", None)
    return here is not None and Path(found.origin).resolve() == Path(here).resolve()


def user_modules() -> Iterator[tuple[str, Path]]:
    """Give the loaded modules that are neither installed nor Python's own nor ours, with their files."""
    installed = installed_folders(os.environ)
    for name, module in list(sys.modules.items()):
        path = _source_path(module) if name != MAIN else None
        if path is not None and not is_installed(name, path, installed):
            yield name, path


def is_installed(name: str, path: Path, folders: Sequence[Path]) -> bool:
    """Tell whether a module is not the user's: by its name, or because of where its file lies."""
    if name.partition(".")[0] in _NEVER_SENT or not _PACKAGE_FOLDERS.isdisjoint(path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in folders)


class ShippedModules(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from sources that were sent."""

    def __init__(self, files: Sequence[ModuleFile]) -> None:
        """Know the sources by name."""
        self._files: Mapping[str, ModuleFile] = {file.name: file for file in files}

    def install(self) -> None:
        """Be asked first by the import system, in place of an earlier one: a Python worker may serve several runs."""
        sys.meta_path[:] = [self, *(each for each in sys.meta_path if not isinstance(each, ShippedModules))]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for the modules that were sent."""
        del path, target  # the names are whole, and nothing is reloaded
        file = self._files.get(fullname)
        if file is None:
            return None
        spec = spec_from_loader(fullname, self, origin=file.path)
        if spec is not None:
            spec.has_location = True  # sets __file__
        return spec

    def get_source(self, fullname: str) -> str:
        """Return the source; tracebacks show its lines."""
        return importlib.util.decode_source(self._files[fullname].source)

    def get_code(self, fullname: str) -> CodeType:
        """Compile under the driver's path."""
        file = self._files[fullname]
        code: CodeType = compile(file.source, file.path, "exec", dont_inherit=True)
        return code

    def is_package(self, fullname: str) -> bool:
        """Answer no: a package is imported by its name or not at all."""
        del fullname
        return False


def _look_up(name: str) -> importlib.machinery.ModuleSpec | None:
    """Search for a module without believing `sys.modules`."""
    spec: importlib.machinery.ModuleSpec | None = None
    path: Any = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        try:
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:count]), path)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and count < len(parts):
            return None
    return spec


def _source_path(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    if not isinstance(name, str) or not name.endswith(".py"):
        return None
    path = Path(name).resolve()
    return path if path.is_file() else None


def _name_of_script(path: Path) -> str:
    """Return the file's name, unless a module that is needed has it."""
    name = path.stem
    taken = name in sys.stdlib_module_names or name in sys.modules or name == _OURS
    return f"{name}__script" if taken else name


def installed_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders whose modules are not the user's, besides those that their names give away."""
    paths = sysconfig.get_paths()
    names = [paths[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    names.append(site.getusersitepackages())
    spark_home = environment.get("SPARK_HOME")
    if spark_home:
        names.append(f"{spark_home}/python")
    return [Path(each).resolve() for each in names]

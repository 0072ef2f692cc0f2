"""Pickle a pipeline that has no name: as little of it by value as can be.

What a module's name leads to is named. A function inside a function, or a lambda, travels as its code and what it
closes over, but finds its globals in its module as the other process imported it: so a client at the module's top level
is that process's own, and need not be picklable. Only what was typed into a notebook travels whole.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import types
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark import cloudpickle

from anabranch.spark.modules import MAIN

if TYPE_CHECKING:
    from anabranch.spark.modules import Modules

_CODERS: Final[dict[type, tuple[str, ...]]] = {
    msgspec.json.Decoder: ("type", "strict", "dec_hook", "float_hook"),
    msgspec.json.Encoder: ("enc_hook", "decimal_format", "uuid_format", "order"),
}
"""Built from these, and not picklable by themselves."""
_CloudPickler: Final[Any] = cloudpickle.Pickler  # pyspark's copy has no types


def dumps(value: object, modules: Modules, bytes_max: int | None = None) -> bytes:
    """Pickle a value; the modules that it needs are noted in `modules`. Raises what its parts raise when they cannot.

    Above `bytes_max` it stops with BufferError.
    """
    buffer = _Bounded(bytes_max)
    _Pickler(buffer, modules).dump(value)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """Make the value again. The data comes from this run's own driver, through Spark."""
    return pickle.loads(data)  # noqa: S301 - as every function that Spark runs


class _Bounded(io.BytesIO):
    def __init__(self, bytes_max: int | None) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def write(self, data: Any, /) -> int:
        if self._bytes_max is not None and self.tell() + memoryview(data).nbytes > self._bytes_max:
            raise BufferError(f"more than {self._bytes_max} bytes")
        return super().write(data)


class _Pickler(_CloudPickler):  # type: ignore[misc]  # as said there
    def __init__(self, file: io.BytesIO, modules: Modules) -> None:
        super().__init__(file)
        self._modules = modules

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType):
            named = self._named(obj)
            return self._function(obj) if named is None else named
        if isinstance(obj, type):
            named = self._named(obj)
            return super().reducer_override(obj) if named is None else named
        if isinstance(obj, types.ModuleType):
            name = self._modules.name_elsewhere(obj.__name__)
            return (importlib.import_module, (name,)) if name is not None else NotImplemented
        if type(obj) in _CODERS:
            given = {name: getattr(obj, name) for name in _CODERS[type(obj)]}
            make: Any = type(obj)
            return partial(make, **given), ()
        return super().reducer_override(obj)

    def _named(self, obj: Any) -> Any:
        """Reduce a function or class that its module's name leads to."""
        name = getattr(obj, "__module__", None)
        if not isinstance(name, str):
            return None
        elsewhere = self._modules.name_elsewhere(name)
        if elsewhere is None or _attribute(sys.modules.get(name), obj.__qualname__) is not obj:
            return None
        return (attribute_of, (elsewhere, obj.__qualname__)) if elsewhere != name or name == MAIN else NotImplemented

    def _function(self, function: types.FunctionType) -> Any:
        """Reduce a function by value, with the globals of its module where that can be imported."""
        reduced = super().reducer_override(function)
        module = sys.modules.get(function.__module__ or "")
        if reduced is NotImplemented or module is None or function.__globals__ is not vars(module):
            return reduced
        elsewhere = self._modules.name_elsewhere(function.__module__)
        if elsewhere is None:
            return reduced
        make, (code, _, *rest), (state, slots), *others = reduced
        slots |= {"__globals__": {}, "_cloudpickle_submodules": [], "__module__": elsewhere}
        return make, (code, _Globals(elsewhere), *rest), (state, slots), *others


class _Globals:
    """Stands for a module's globals in a pickle."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> Any:
        return globals_of, (self._module,)


def globals_of(module: str) -> dict[str, Any]:
    """Return the globals of a module, imported if need be."""
    return vars(importlib.import_module(module))


def attribute_of(module: str, qualified_name: str) -> Any:
    """Return what a module's name leads to, imported if need be."""
    value: Any = importlib.import_module(module)
    for part in qualified_name.split("."):
        value = getattr(value, part)
    return value


def _attribute(value: Any, qualified_name: str) -> Any:
    for part in qualified_name.split("."):
        value = getattr(value, part, None)
    return value

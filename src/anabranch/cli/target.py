"""Find the pipeline that `MODULE:NAME` means, and say what is wrong when there is none.

The module is imported from the current folder, as `python -m` would. What the user's own code raises on the way is
shown as its traceback, cut down to frames of the current folder: ours and the import system's say nothing to him.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.config import suggestion
from anabranch.core.errors import UsageError
from anabranch.pipeline.importing import importing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from anabranch.pipeline.builder import Pipeline

_OURS = Path(__file__).resolve().parents[1]
_EXAMPLE = "as in app:billing for `billing = Pipeline(...)` in app.py"


def load_pipeline(target: str) -> Pipeline[Any]:
    """Import the module from the current folder and return its pipeline; raise UsageError that says what to change."""
    from anabranch.pipeline.builder import Pipeline

    module_name, colon, name = target.partition(":")
    module_name = _as_module(module_name, target)
    module = _imported(module_name)
    found = {each: value for each, value in vars(module).items() if isinstance(value, Pipeline)}
    if not colon or not name:
        raise UsageError(f"given {target!r}, which names no pipeline: {_offer(module_name, found)}")
    if name in found:
        return found[name]
    if not hasattr(module, name):
        near = suggestion(name, found) if found else f"; {_offer(module_name, found)}"
        raise UsageError(f"module {module_name} has no {name!r}{near}")
    raise UsageError(_not_a_pipeline(f"{module_name}:{name}", getattr(module, name), module_name, found))


def user_frames(error: BaseException, folder: Path) -> str:
    """Return the traceback of an error, with the frames of files below the folder only."""
    whole = traceback.TracebackException.from_exception(error)
    _keep_user_frames(whole, folder, set())
    return "".join(whole.format()).rstrip("\n")


def _as_module(text: str, target: str) -> str:
    """Return the module's name; who types a path to a file is told the name."""
    if text.endswith(".py") or "/" in text:
        path = text.removesuffix(".py").removeprefix("./").strip("/")
        name = target.partition(":")[2] or "PIPELINE"
        raise UsageError(
            f"given {target!r}: name the module, not the file: {path.replace('/', '.')}:{name} "
            "(it is imported from the current folder)"
        )
    if not text or not all(part.isidentifier() for part in text.split(".")):
        raise UsageError(f"given {target!r}, allowed is MODULE:PIPELINE, {_EXAMPLE}")
    return text


def _imported(name: str) -> ModuleType:
    folder = Path.cwd()
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        with importing(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(_no_module(name, folder)) from None
        raise _broken(name, error, folder) from error
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # also SystemExit: a script without `if __name__ == "__main__":`
        raise _broken(name, error, folder) from error


def _no_module(name: str, folder: Path) -> str:
    text = f"no module {name!r} in {folder}"
    near = _nearest_module(name, folder)
    return text + (near or f": run the command in the folder that has {name.partition('.')[0]}.py")


def _nearest_module(name: str, folder: Path) -> str:
    import difflib

    known = sorted(
        {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    )
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _broken(name: str, error: BaseException, folder: Path) -> UsageError:
    told = UsageError(f"module {name} cannot be imported: {_last_line(error)}{_hint(error)}")
    told.add_note(user_frames(error, folder))
    return told


def _last_line(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"; install {error.name} where this command runs ({sys.prefix})"
    if isinstance(error, SystemExit):
        return '; put what the script does under `if __name__ == "__main__":`'
    return ""


def _offer(module: str, found: Iterable[str]) -> str:
    names = sorted(found)
    if names:
        return f"it has {', '.join(f'{module}:{name}' for name in names)}"
    return f"{module} has none at its top level; assign one to a name, {_EXAMPLE}"


def _not_a_pipeline(target: str, value: object, module: str, found: Iterable[str]) -> str:
    kind = type(value).__name__
    text = f"{target} is of type {kind}, not a Pipeline"
    if callable(value):
        text += f"; if it makes one, assign what it returns: pipeline = {target.partition(':')[2]}()"
    return f"{text}; {_offer(module, found)}" if list(found) else text


def _keep_user_frames(shown: traceback.TracebackException, folder: Path, seen: set[int]) -> None:
    """Cut the frames of an error and of the errors that led to it."""
    if id(shown) in seen:
        return
    seen.add(id(shown))
    kept = [frame for frame in shown.stack if _is_users(frame.filename, folder)]
    shown.stack = traceback.StackSummary.from_list(kept)
    for before in (shown.__cause__, shown.__context__):
        if before is not None:
            _keep_user_frames(before, folder, seen)


def _is_users(filename: str, folder: Path) -> bool:
    path = Path(filename)
    if not path.is_absolute():
        return not filename.startswith("<")
    if path.is_relative_to(_OURS) or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return path.is_relative_to(folder)

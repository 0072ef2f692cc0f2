"""What a query's checkpoint says, read from Spark's files: who the query is, and how far it has committed.

Spark writes `offsets/<n>` before batch n runs and `commits/<n>` when it is done; both begin with a line `v1`, and an
offset file ends with a line of JSON for each source. Nothing is ever written here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from anabranch.core.errors import Halted, UsageError
from anabranch.spark.positions import restored

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.spark.positions import Positions


def location_of(folder: Path) -> str:
    """Return a folder of this machine's as Hadoop takes it: it never decodes, so `as_uri` would name another one."""
    return f"file://{folder.absolute()}"


def running_id(folder: Path) -> str:
    """Return the id of a query that runs, which Spark has written down."""
    found = query_id(folder)
    if found is None:
        raise Halted(f"the checkpoint {folder} is not there although its query runs: was it moved, or deleted?")
    return found


def query_id(folder: Path) -> str | None:
    """Return the id that the query keeps through all its starts; None before its first."""
    try:
        return str(json.loads((folder / "metadata").read_text())["id"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the checkpoint {folder} cannot be read: {error}; restore it, or name the query anew"
        ) from error


def planned(folder: Path) -> list[Positions]:
    """Return where the newest batch ends that was begun, for each source; nothing before the first batch."""
    return _positions(folder, _newest(folder / "offsets"))


def committed(folder: Path) -> list[Positions]:
    """Return where the newest batch ends that is done, for each source; nothing before the first."""
    return _positions(folder, newest_commit(folder))


def spans(folder: Path, batch: int) -> list[tuple[Positions, Positions]]:
    """Return between which positions a batch reads, for each source; nothing for the first, which reads nothing."""
    return list(zip(_positions(folder, batch - 1), _positions(folder, batch), strict=False)) if batch > 0 else []


def newest_commit(folder: Path) -> int | None:
    """Return the number of the newest batch that is done."""
    return _newest(folder / "commits")


def _newest(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    return max((int(each.name) for each in folder.iterdir() if each.name.isdigit()), default=None)


def only_enters(folder: Path, batch: int) -> bool:
    """Tell whether a batch has no rows because it is the first: our source reads from the second on."""
    lines = _lines(folder, batch) if batch == 0 else []
    return bool(lines) and all(_restored(line) is not None for line in lines)


def _positions(folder: Path, batch: int | None) -> list[Positions]:
    found = [] if batch is None else [_restored(line) for line in _lines(folder, batch)]
    return [each for each in found if each is not None]


def _lines(folder: Path, batch: int) -> list[str]:
    path = folder / "offsets" / str(batch)
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines()[2:] if line != "-"]  # version and settings stand before


def _restored(line: str) -> Positions | None:
    """Return the positions of one source; None for a source that is not ours, as a transform may have joined."""
    try:
        return restored(line)
    except UsageError:
        return None

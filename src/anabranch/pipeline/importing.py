"""While a pipeline's module is imported in order to run it, nothing in it may run by itself.

A file that ends in a bare `billing.run()` works as a script. Imported by a Spark member or by `anabranch run`, it would
start a run before the run; so it is refused, with the line that helps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_IMPORTED: Final[list[str]] = []


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Refuse runs while the block lasts; `what` is imported in it."""
    _IMPORTED.append(what)
    try:
        yield
    finally:
        _IMPORTED.pop()


def refuse_while_importing(verb: str) -> None:
    """Raise UsageError if a run is asked for by a module that is only being imported."""
    if _IMPORTED:
        raise UsageError(
            f"{_IMPORTED[-1]} calls {verb}() while it is imported in order to be run: "
            f'put .{verb}() under `if __name__ == "__main__":`'
        )

"""Source text under construction: what the compilers of decoders and encoders share.

A run of fixed-width values is collected and written as one call of one precompiled `struct.Struct`. The length in front
of a string or an array joins the run before it, so that a struct of five numbers and a short string costs one call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from anabranch.broker.wire.schema import STRUCT_FORMATS, FieldPlan, plan_struct
from anabranch.core.errors import InternalError

LENGTH_FORMATS = {"string": "h", "bytes": "i", "records": "i"}


class Source:
    """Lines of one function, the names that it uses, and the run of fixed-width values that is not yet written."""

    def __init__(self, label: str, version: int, *, is_flexible: bool, names: dict[str, Any]) -> None:
        self.label = label
        self.version = version
        self.is_flexible = is_flexible
        self.names = names
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 0
        self._fresh = 0

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that ends in a colon, and indent what follows."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Give a variable name that is not in use."""
        self._fresh += 1
        return f"{stem}{self._fresh}"

    def struct_method(self, formats: str, method: str) -> str:
        """Give the name of a method of a precompiled struct."""
        name = f"{method}_{formats.replace('?', 'o')}"
        self.names[name] = getattr(Struct(f">{formats}"), method)
        return name

    def class_name(self, struct: type) -> str:
        """Give the name under which the function knows a class."""
        self.names[struct.__name__] = struct
        return struct.__name__

    def length_format(self, plan: FieldPlan) -> str:
        """Say how the length of a field travels: a byte that may grow, or a fixed number."""
        if self.is_flexible:
            return "B"
        return "i" if plan.is_array else LENGTH_FORMATS[str(plan.of)]

    def build(self, name: str) -> Callable[..., Any]:
        """Compile the lines, and give the function."""
        if self.run:
            raise InternalError(f"{self.label}: a run of fixed-width values was never written; flush it")
        text = "\n".join(self._lines)
        # The text is made of our own tables: no byte of a peer is ever in it.
        exec(compile(text, f"<{self.label} v{self.version} {name}>", "exec"), self.names)  # noqa: S102 - see above
        function: Callable[..., Any] = self.names[name]
        return function


def bytes_min(plan: FieldPlan, version: int, *, is_flexible: bool) -> int:
    """Give the fewest bytes that one value of a field takes; of an array, one entry of it."""
    if isinstance(plan.of, type):
        return struct_bytes_min(plan.of, version, is_flexible=is_flexible)
    if plan.of in STRUCT_FORMATS:
        return Struct(f">{STRUCT_FORMATS[plan.of]}").size
    return 1 if is_flexible else Struct(f">{LENGTH_FORMATS[plan.of]}").size


def struct_bytes_min(struct: type, version: int, *, is_flexible: bool) -> int:
    """Give the fewest bytes that a struct takes, which is never zero: else a count could not be checked."""
    size = 1 if is_flexible else 0
    for plan in plan_struct(struct, version).inline:
        array_bytes = 1 if is_flexible else 4
        size += array_bytes if plan.is_array else bytes_min(plan, version, is_flexible=is_flexible)
    if size == 0:
        raise InternalError(f"{struct.__name__} v{version} has no bytes; an array of it cannot be bounded")
    return size

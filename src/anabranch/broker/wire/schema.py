"""What a message is made of: fields with a Kafka type and the versions that have them.

A message is a dataclass. Each field's metadata (`wire`) says how it travels; the dataclass says which Python type and
default it has. A top-level message has a `WIRE` with its API key, its versions and the first flexible version
(KIP-482: compact lengths and tagged fields). The codec reads nothing but this.

Rules that hold here:

- A version that does not have a field decodes to the field's default, and encodes as if the field were not there.
- A tagged field is tagged in all its versions (true of every message that we speak, and checked by the generator). It
  is written only when it differs from its default. A tagged struct that is not there is `None`.
- Times are integers of milliseconds, error codes plain integers, a topic id 16 bytes (`NO_ID` for none).
- `records` decodes to a view into the frame, never a copy; whoever keeps it keeps the frame.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, Protocol

Kind = Literal["bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes", "records"]

RecordsIn = bytes | memoryview | None
"""A records field of a request: decoded as a view into the frame."""
RecordsOut = bytes | memoryview | Sequence[bytes | memoryview] | None
"""A records field of an answer: a list stands for the concatenation of its parts, which are not copied."""

NO_ID: Final = bytes(16)
VERSION_OPEN: Final = 32767
STRUCT_FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uuid": "16s"}
)
"""The kinds of fixed width, as the struct module writes them; all others have a length before them."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Read Kafka's notation: `3+`, `0-2`, `1`."""
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_OPEN)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        """Say whether the version is in the range."""
        return self.first <= version <= self.last


NO_VERSIONS: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Wire:
    """How one field travels: `of` is a kind or the class of a struct."""

    of: Kind | type
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None


@dataclass(frozen=True, slots=True)
class MessageWire:
    """What a top-level message adds: its API, its versions, and from which one it is flexible."""

    key: int
    versions: Versions
    flexible: Versions


class Message(Protocol):
    """A top-level message: a dataclass of `messages/`."""

    WIRE: ClassVar[MessageWire]


def message(key: int, versions: str, flexible: str) -> MessageWire:
    """Describe a top-level message."""
    return MessageWire(key, Versions.parse(versions), Versions.parse(flexible))


def wire(of: Kind | type, versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> dict[str, Wire]:
    """Describe a field of one value, as dataclass metadata."""
    return {"wire": _wire(of, versions, nullable, tag, is_array=False)}


def array(of: Kind | type, versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> dict[str, Wire]:
    """Describe a field that is an array, as dataclass metadata."""
    return {"wire": _wire(of, versions, nullable, tag, is_array=True)}


def _wire(of: Kind | type, versions: str, nullable: str, tag: int | None, *, is_array: bool) -> Wire:
    null_versions = Versions.parse(nullable) if nullable else NO_VERSIONS
    return Wire(of, is_array, Versions.parse(versions), null_versions, tag)


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """One field as one version sees it."""

    name: str
    of: Kind | type
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    """The default; of an array or a struct, its factory's fresh value, to compare with and never to hand out."""


@dataclass(frozen=True, slots=True)
class StructPlan:
    """The fields of one struct in one version, in wire order: in line, tagged, and those that the version lacks."""

    inline: tuple[FieldPlan, ...]
    tagged: tuple[FieldPlan, ...]
    absent: tuple[FieldPlan, ...]


def plan_struct(struct: type, version: int) -> StructPlan:
    """Sort the fields of a struct by where they are in a version."""
    inline, tagged, absent = [], [], []
    for field in fields(struct):
        spec: Wire = field.metadata["wire"]
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        plan = FieldPlan(field.name, spec.of, spec.is_array, version in spec.nullable, spec.tag, default)
        if version not in spec.versions:
            absent.append(plan)
        elif spec.tag is None:
            inline.append(plan)
        else:
            tagged.append(plan)
    tagged.sort(key=lambda plan: plan.tag or 0)
    return StructPlan(tuple(inline), tuple(tagged), tuple(absent))

"""What a record costs in memory while it is held: the measure of every bound in bytes.

`Intake` has the same sum inline, in its hot loop; a test holds them together.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.records import Headers, Record

TASK_BYTES: Final = 512
"""What a record costs besides its own bytes: task, named tuple, headers of objects, entries in tables."""
HEADER_BYTES: Final = 160
"""What one header costs besides its bytes: a tuple and two objects."""

_key: Final = itemgetter(3)
_value: Final = itemgetter(4)
_headers: Final = itemgetter(5)


def headers_size(headers: Headers) -> int:
    """Say what headers cost."""
    return sum([HEADER_BYTES + len(name) + (len(value) if value else 0) for name, value in headers])


def total_size(records: Sequence[Record]) -> int:
    """Say what records cost together; 0.1 µs each."""
    return (
        TASK_BYTES * len(records)
        + sum(map(len, filter(None, map(_value, records))))
        + sum(map(len, filter(None, map(_key, records))))
        + sum(map(headers_size, filter(None, map(_headers, records))))
    )


def record_sizes(records: Sequence[Record]) -> list[int]:
    """Say what each record costs."""
    return [
        TASK_BYTES + len(record.value or b"") + len(record.key or b"") + headers_size(record.headers)
        for record in records
    ]

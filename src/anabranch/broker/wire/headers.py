"""The headers in front of every request and answer.

A request's header is the same in all versions but for the tagged fields that a flexible API adds at its end; its
client id stays a string with a two-byte length even then (KIP-482). An answer's header is the correlation id, and an
empty set of tags when the API is flexible, except for ApiVersions: a client that asked for a version that we do not
know must be able to read the answer (KIP-511).

An API that is not in the table has a header without tags as far as we can know. That is enough to say which one it is;
nothing behind it can be read.
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from anabranch.broker.wire.apis import API, API_VERSIONS_KEY
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.primitives import read_uvarint, skip_tags
from anabranch.broker.wire.schema import VERSION_OPEN

_REQUEST: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")
_CORRELATION_AND_TAGS: Final = Struct(">ix")


class RequestHeader(NamedTuple):
    """Who asks what; the body begins at `body_position`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def flexible_from(api_key: int) -> int:
    """Give the first flexible version of an API; of an unknown one, a version that no request has."""
    api = API.get(api_key)
    return api.flexible_from if api else VERSION_OPEN


def read_request_header(frame: memoryview, flexible_from: Callable[[int], int] = flexible_from) -> RequestHeader:
    """Read the header of a request; the frame begins behind its length. Raises `WireError` when it is none."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = _REQUEST.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise WireError(f"request header: a client id of {length} bytes, {len(frame) - position} are left")
            client_id = str(frame[position:end], "utf-8")
            position = end
        elif length != -1:
            raise WireError(f"request header: a client id of {length} bytes")
        if api_version >= flexible_from(api_key):
            count, position = read_uvarint(frame, position)
            if count:
                position = skip_tags(frame, position, count)
    except (struct.error, IndexError) as cause:
        raise WireError("the request ends within its header") from cause
    except UnicodeDecodeError as cause:
        raise WireError("request header: the client id is not UTF-8") from cause
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def write_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Write the header of a request, as a client does."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= flexible_from(api_key) else b""
    return _REQUEST.pack(api_key, api_version, correlation_id, length) + name + tags


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Write the header of an answer to a request of this API and version."""
    if version >= flexible_from(api_key) and api_key != API_VERSIONS_KEY:
        return _CORRELATION_AND_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)

"""From what a handler returned to the bytes that are written."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.core.errors import Poison

_RAW = (bytes, bytearray, memoryview)


def encode_value(value: Any) -> bytes | None:
    """Encode bytes as they are, text as UTF-8, None as null, anything else as JSON; raise Poison for what cannot be."""
    try:
        if isinstance(value, _RAW):
            return bytes(value)  # bytes themselves are not copied
        if isinstance(value, str):
            return value.encode()
        return None if value is None else _encode_json(value)
    except Exception as error:
        raise Poison(
            f"the handler returned a value of type {type(value).__name__} that cannot be written ({error}): "
            "return bytes, str, None, or what JSON can hold (dict, list, number, dataclass, msgspec or pydantic model)"
        ) from error


def encode_key(key: Any) -> bytes | None:
    """Encode a key: bytes, text or none; raise Poison for anything else."""
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise Poison(f"the handler returned Out(key={key!r}), which is not text: {error}") from error
    raise Poison(f"the handler returned Out(key={key!r}): a key is bytes, str or None")


def _dumped(value: Any) -> Any:
    """Encode what msgspec does not know: pydantic models, by what they can do; pydantic is never imported here."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not known to JSON")
    return dump(mode="json")


_encode_json = msgspec.json.Encoder(enc_hook=_dumped).encode

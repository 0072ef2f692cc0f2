"""The tables of the wire codec: written by the tool, contiguous, and the protocol's own numbers."""

import importlib.util
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from anabranch.broker.wire.apis import API
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.schema import Versions

TOOL = Path(__file__).resolve().parents[2] / "tools/generate_messages.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    """The generator, imported from its file."""
    spec = importlib.util.spec_from_file_location("generate_messages", TOOL)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_running_the_generator_again_changes_nothing(tool: Any) -> None:
    """The committed message files are what the tool writes."""
    written = {path.stem: path.read_text() for path in tool.TARGET.glob("*.py") if path.stem != "__init__"}
    assert written == {api: tool.render(api) for api in tool.VERSION_MAX}


def test_every_hand_written_fact_of_the_generator_is_used(tool: Any) -> None:
    """A misspelt name in the table of older versions would silently say nothing."""
    found = {
        f"{table.name}.{column.name}"
        for api in tool.VERSION_MAX
        for side in ("request", "response")
        for table in tool.read_kio(api, side)[2]
        for column in table.columns
    }
    assert found >= set(tool.OLDER)
    assert found >= {f"{struct}.{column.name}" for struct, _, column in tool.ADDED}


def test_all_ranges_start_at_zero_and_reach_what_clients_pick() -> None:
    """The table offers each API from version 0 up to at least the highest version that a known client picks."""
    picked = {18: 4, 3: 13, 0: 12, 1: 17, 2: 10, 22: 5, 10: 5, 11: 9, 14: 5, 12: 4, 13: 5, 8: 9, 9: 9, 23: 4}
    picked |= {19: 7, 20: 6, 37: 3, 21: 2, 32: 4, 15: 5, 16: 5}
    assert {key: (api.version_min, api.version_max) for key, api in API.items()} == {
        key: (0, version) for key, version in picked.items()
    }


def test_request_and_response_of_an_api_agree_on_versions() -> None:
    """Both sides of an API have one key, one range and one first flexible version."""
    for key, api in API.items():
        assert api.request.WIRE == api.response.WIRE
        assert api.key == key == api.request.WIRE.key
        assert api.request.__name__ == f"{api.name}Request"


def test_every_message_can_be_made_without_arguments() -> None:
    """All fields have defaults, and no two messages share a list."""
    for api in API.values():
        for cls in (api.request, api.response):
            first, second = cls(), cls()
            assert first == second
            for field in fields(cls):  # type: ignore[arg-type]
                value = getattr(first, field.name)
                assert not isinstance(value, list) or value is not getattr(second, field.name)


def test_error_codes_are_kafkas() -> None:
    """Names and numbers of all codes are those that kio took from Kafka."""
    assert {code.name: code.value for code in ErrorCode} == {code.name.upper(): int(code) for code in KioErrorCode}


def test_version_ranges_are_read_as_kafka_writes_them() -> None:
    """`3+` is open, `0-2` includes both ends, `1` is one version."""
    assert [v for v in range(6) if v in Versions.parse("3+")] == [3, 4, 5]
    assert [v for v in range(6) if v in Versions.parse("0-2")] == [0, 1, 2]
    assert [v for v in range(6) if v in Versions.parse("1")] == [1]

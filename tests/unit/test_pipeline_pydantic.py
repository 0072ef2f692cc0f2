"""Pydantic models are read and written where pydantic is installed; the project itself never imports it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pipeline_tasks import outputs, task

from anabranch import DecodeError, Pipeline

pydantic = pytest.importorskip("pydantic")


class Model(pydantic.BaseModel):
    total: int
    at: datetime = datetime(2031, 5, 4, tzinfo=UTC)


@dataclass
class Bundle:
    models: list[Model]


JSON = b'{"total":3,"at":"2031-05-04T00:00:00Z"}'


def copied(target: Any, value: bytes | None) -> bytes | None:
    (output,) = outputs(Pipeline("copy").read("orders", target).write("copies"), task(value))
    return output.value


@pytest.mark.parametrize("target", [Model, Model | None])
def test_a_model_is_read_and_written(target: Any) -> None:
    """By its own validation and its own dump."""
    assert copied(target, b'{"total": 3}') == JSON


def test_models_inside_other_types_are_read_and_written() -> None:
    """In dataclasses and lists, at any depth."""
    assert copied(Bundle, b'{"models": [{"total": 3}]}') == b'{"models":[' + JSON + b"]}"
    assert copied(dict[str, Model], b'{"a": {"total": 3}}') == b'{"a":' + JSON + b"}"


@pytest.mark.parametrize(
    ("target", "value"), [(Model, b'{"total": "x"}'), (Bundle, b'{"models": [{}]}'), (Model, b"{")]
)
def test_what_a_model_refuses_is_poison(target: Any, value: bytes) -> None:
    """With pydantic's own words."""
    with pytest.raises(DecodeError, match=f"is not {target.__name__}: "):
        copied(target, value)


def test_a_null_value_is_given_as_none_only_where_the_type_allows_it() -> None:
    """As for every other type."""
    step = Pipeline("copy").read("orders", Model | None).process(print).plan().steps[0]
    assert step.prepare(task(None)) is None
    with pytest.raises(DecodeError, match=r"read `Model \| None`"):
        copied(Model, None)

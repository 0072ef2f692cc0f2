"""The collector's thresholds are the process's: a run raises them, and puts them back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from anabranch.runtime.garbage import YOUNG, rare_collections

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_the_thresholds_are_raised_while_any_run_is_on() -> None:
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold() == (YOUNG, 10, 10)
        assert gc.get_threshold() == (YOUNG, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_what_the_process_chose_itself_is_left_alone() -> None:
    """Higher before, collecting switched off by a threshold of 0, or chosen while the run was on."""
    for chosen in ((YOUNG * 2, 5, 5), (0, 10, 10)):
        gc.set_threshold(*chosen)
        with rare_collections():
            assert gc.get_threshold()[0] == chosen[0]
        assert gc.get_threshold()[0] == chosen[0]
    gc.set_threshold(700, 10, 10)
    with rare_collections():
        gc.set_threshold(1234, 10, 10)
    assert gc.get_threshold() == (1234, 10, 10)

"""Call what blocks on a thread of its own, which ends with the process.

Threads of an executor are waited for when the interpreter ends: a call into a JVM that does not answer would hold the
process for ever. These are not. A result that comes when the loop is closed is nobody's any more.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LOGGER: Final = logging.getLogger("anabranch.spark")


def call_apart(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    """Begin a call; the answer is filled in on the loop that runs here. Cancelling it does not end the call."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def fill(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return  # nobody waits for it any more
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def main() -> None:
        value, problem = None, None
        try:
            value = function(*arguments)
        except BaseException as error:  # told to who waits
            problem = error
        try:
            loop.call_soon_threadsafe(fill, value, problem)
        except RuntimeError:
            if not loop.is_closed():
                raise

    threading.Thread(target=main, name=f"anabranch-apart-{_name(function)}", daemon=True).start()
    return answer


def tell_problem(answer: asyncio.Future[Any]) -> None:
    """Log what a call raised for whose answer nobody waits."""
    if not answer.cancelled() and (error := answer.exception()) is not None:
        LOGGER.warning("Spark did not do as told: %s: %s", type(error).__name__, error)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__).strip("_")

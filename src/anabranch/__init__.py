"""Ordered, parallel, loss-free processing of Kafka records, with a Kafka that pip installs.

The public names are resolved when they are first used: worker processes import this module, and it must stay light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.broker.embedded import Broker
    from anabranch.core.errors import (
        AnabranchError,
        BrokerUnreachable,
        DecodeError,
        Fatal,
        Halted,
        HandlerError,
        HandlerTimeout,
        InternalError,
        PeerError,
        Poison,
        RetryAfter,
        UsageError,
    )
    from anabranch.core.policies import Breaker, Commit, Gate, Retry
    from anabranch.core.records import Record
    from anabranch.pipeline.builder import Pipeline
    from anabranch.pipeline.context import Context
    from anabranch.pipeline.outputs import Out

__version__ = "0.1.0"
__all__ = [
    "AnabranchError",
    "Breaker",
    "Broker",
    "BrokerUnreachable",
    "Commit",
    "Context",
    "DecodeError",
    "Fatal",
    "Gate",
    "Halted",
    "HandlerError",
    "HandlerTimeout",
    "InternalError",
    "Out",
    "PeerError",
    "Pipeline",
    "Poison",
    "Record",
    "Retry",
    "RetryAfter",
    "UsageError",
    "__version__",
]

_HOMES = {
    "Breaker": "anabranch.core.policies",
    "Broker": "anabranch.broker.embedded",
    "Commit": "anabranch.core.policies",
    "Context": "anabranch.pipeline.context",
    "Gate": "anabranch.core.policies",
    "Out": "anabranch.pipeline.outputs",
    "Pipeline": "anabranch.pipeline.builder",
    "Record": "anabranch.core.records",
    "Retry": "anabranch.core.policies",
}
_ERRORS = "anabranch.core.errors"  # the home of every other public name


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name not in __all__:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, _ERRORS)), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return list(__all__)

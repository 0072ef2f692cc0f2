"""Ordered, parallel, loss-free processing of Kafka records, with a Kafka that pip installs.

The public names are resolved when they are first used: worker processes import this module, and it must stay light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.broker.embedded import Broker
    from anabranch.core.errors import AnabranchError, HandlerError, InternalError, PeerError, UsageError

__version__ = "0.1.0"
__all__ = ["AnabranchError", "Broker", "HandlerError", "InternalError", "PeerError", "UsageError", "__version__"]

_HOMES = {
    "Broker": "anabranch.broker.embedded",
    "AnabranchError": "anabranch.core.errors",
    "HandlerError": "anabranch.core.errors",
    "InternalError": "anabranch.core.errors",
    "PeerError": "anabranch.core.errors",
    "UsageError": "anabranch.core.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name not in _HOMES:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

"""Who asks, as far as an API handler may know."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """The request's version and its client."""

    version: int
    client_id: str
    client_host: str

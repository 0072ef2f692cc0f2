"""ApiVersions: which APIs are served, in which versions. The first thing a client asks.

A version that is not known is answered UNSUPPORTED_VERSION in a version 0 body that lists the versions of ApiVersions
itself, so that the client can ask again (KIP-511).
"""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.wire.apis import API
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def handle(node: Node, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """List the table."""
    return ApiVersionsResponse(api_keys=_table())


def unsupported() -> ApiVersionsResponse:
    """Answer a version that is not known."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_table())


def _table() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.version_min, max_version=api.version_max) for api in API.values()
    ]

"""Request and response headers, byte for byte."""

import pytest

from anabranch.broker.wire.apis import API
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.headers import read_request_header, response_header, write_request_header


def test_a_classic_request_header_ends_with_the_client_id() -> None:
    """Version 1 of the header: key, version, correlation id, client id."""
    frame = bytes.fromhex("0003 0004 00000007 0003 616263 ffff")
    header = read_request_header(memoryview(frame))
    assert header == (3, 4, 7, "abc", 13)
    assert write_request_header(3, 4, 7, "abc") == frame[:13]


def test_a_flexible_request_header_keeps_the_short_client_id_and_adds_tags() -> None:
    """Version 2 of the header: the client id has a two-byte length as before; unknown tags are skipped."""
    plain = bytes.fromhex("0003 0009 00000007 0003 616263 00")
    assert read_request_header(memoryview(plain)) == (3, 9, 7, "abc", 14)
    assert write_request_header(3, 9, 7, "abc") == plain
    tagged = bytes.fromhex("0003 0009 00000007 ffff 02 05 02 aabb 8101 00 11")
    assert read_request_header(memoryview(tagged)) == (3, 9, 7, None, 18)


def test_an_unknown_api_still_has_a_readable_header() -> None:
    """The key of an API that we do not speak can be read, to say so."""
    frame = write_request_header(999, 3, 1, None)
    assert read_request_header(memoryview(frame)) == (999, 3, 1, None, 10)


def test_every_request_header_reads_back() -> None:
    """For every API and version, and one version beyond, what a client writes is what we read."""
    for api in API.values():
        for version in range(api.version_max + 2):
            frame = write_request_header(api.key, version, -5, "é")
            assert read_request_header(memoryview(frame)) == (api.key, version, -5, "é", len(frame))


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0003 0004 00000007",
        "0003 0004 00000007 0004 616263",
        "0003 0004 00000007 fffe",
        "0003 0004 00000007 0001 ff",
        "0003 0009 00000007 ffff",
        "0003 0009 00000007 ffff 01 00 7f",
        "0003 0009 00000007 ffff ffffffffff01",
    ],
)
def test_a_broken_request_header_is_a_wire_error(frame: str) -> None:
    """Cut, too long, negative, not UTF-8, without tags, with a tag or a varint that goes too far."""
    with pytest.raises(WireError):
        read_request_header(memoryview(bytes.fromhex(frame)))


def test_a_response_header_has_tags_when_flexible_but_never_for_api_versions() -> None:
    """KIP-511: a client must be able to read the answer to an ApiVersions request of any version."""
    assert response_header(3, 8, 7) == bytes.fromhex("00000007")
    assert response_header(3, 9, 7) == bytes.fromhex("00000007 00")
    assert response_header(18, 4, 7) == bytes.fromhex("00000007")

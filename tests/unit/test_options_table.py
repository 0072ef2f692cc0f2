"""The option table: what it allows, refuses and spells."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import UsageError
from anabranch.core.options import BrokerOptions, KafkaOptions, Option, OptionGroup, options_of, parse_listen

TABLE = options_of(BrokerOptions)
NUMBERS = [each for each in TABLE if each.kind in {int, float}]


def by_name(name: str) -> Option:
    return next(each for each in TABLE if each.name == name)


def values_of(each: Option) -> st.SearchStrategy[object]:
    """Return values that the rule of an option allows."""
    if each.rule.choices:
        return st.sampled_from(each.rule.choices)
    if each.kind is bool:
        return st.booleans()
    if each.kind is int:
        assert each.rule.low is not None
        assert each.rule.high is not None
        return st.integers(int(each.rule.low), int(each.rule.high))
    if each.kind is float:
        return st.floats(each.rule.low, each.rule.high)
    if each.rule.port_min is not None:
        return st.integers(1, 65535).map(lambda port: f"127.0.0.1:{port}")
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@pytest.mark.parametrize("each", TABLE, ids=lambda each: each.name)
def test_every_option_has_a_sentence_and_a_default_that_it_allows(each: Option) -> None:
    """The table is complete: no option without help, no default that would be refused if it were given."""
    assert each.rule.sentence.endswith(".")
    assert each.check(each.default) == each.default


@pytest.mark.parametrize("each", NUMBERS, ids=lambda each: each.name)
def test_a_number_is_allowed_at_its_bounds_and_refused_beyond(each: Option) -> None:
    """Every number has a written limit, and the limit is the first value that is refused."""
    low, high = each.kind(each.rule.low), each.kind(each.rule.high)
    assert (each.check(low), each.check(high)) == (low, high)
    for outside in (low - 1, high * 2):
        with pytest.raises(UsageError, match=each.name):
            each.check(outside)


@given(st.data())
def test_what_the_table_spells_it_reads_back(data: st.DataObject) -> None:
    """A value that was checked survives the way through a flag or an environment variable."""
    each = data.draw(st.sampled_from(TABLE))
    value = each.check(data.draw(values_of(each)))
    assert each.parse(each.spell(value)) == value


def test_an_error_names_the_option_what_was_given_and_what_is_allowed() -> None:
    """The message is enough to mend the call."""
    with pytest.raises(UsageError) as caught:
        BrokerOptions(segment_bytes=7)
    assert str(caught.value) == "option segment_bytes: given 7, allowed is a whole number from 1024 to 2147483647"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_bytes", 4096.0),
        ("segment_bytes", "4096"),
        ("node_id", True),
        ("auto_create", 1),
        ("idle_s_max", float("nan")),
        ("idle_s_max", float("inf")),
        ("listen", 9092),
        ("listen", None),
        ("data_dir", ""),
        ("flush", "sometimes"),
        ("advertise", ""),
        ("advertise", "broker:0"),
        ("log_level", "INFO"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name: str, value: object) -> None:
    """Nothing is guessed: a number in a text, a truth for a number or a fraction for a whole number are mistakes."""
    with pytest.raises(UsageError, match=f"option {name}: given"):
        by_name(name).check(value)


@pytest.mark.parametrize("text", ["true", "Yes", "ON", "1"])
def test_truth_has_several_spellings_in_the_environment(text: str) -> None:
    """Shells and orchestrators spell truth in different ways."""
    assert by_name("auto_create").parse(text) is True


@pytest.mark.parametrize("text", ["maybe", "", "2"])
def test_what_is_neither_true_nor_false_is_refused(text: str) -> None:
    """An unknown spelling is not silently false."""
    with pytest.raises(UsageError, match="auto_create"):
        by_name("auto_create").parse(text)


def test_a_path_and_a_whole_number_of_seconds_become_the_type_of_the_default() -> None:
    """Callers may pass a Path or an int; what is stored has one type, so that it can be sent on as JSON."""
    options = BrokerOptions(data_dir=Path("/tmp/somewhere"), idle_s_max=5)
    assert options.data_dir == "/tmp/somewhere"
    assert isinstance(options.idle_s_max, float)
    assert BrokerOptions(**json.loads(json.dumps(asdict(options)))) == options


def test_a_group_is_frozen_and_can_be_sent_to_another_process() -> None:
    """Options are values: nobody changes them after they were checked, and a changed copy is checked again."""
    options = BrokerOptions(node_id=3)
    with pytest.raises(FrozenInstanceError):
        options.node_id = 4  # type: ignore[misc]  # that it cannot be done is the point
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(UsageError):
        replace(options, node_id=-1)


def test_listening_beyond_loopback_needs_an_address_to_advertise() -> None:
    """A client that is told 0.0.0.0 would connect to itself."""
    with pytest.raises(UsageError, match="advertise"):
        BrokerOptions(listen="0.0.0.0:9092")
    assert BrokerOptions(listen="0.0.0.0:9092", advertise="broker.lan:9092").beyond_loopback


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:9092", "[::1]:9092", "127.1.2.3:1"])
def test_loopback_needs_no_address_to_advertise(listen: str) -> None:
    """The default start has no questions."""
    assert not BrokerOptions(listen=listen).beyond_loopback


def test_the_shortest_session_is_not_longer_than_the_longest() -> None:
    """Else no member could ever join."""
    with pytest.raises(UsageError, match="session_timeout_s_min"):
        BrokerOptions(session_timeout_s_min=10, session_timeout_s_max=5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("broker.lan:0", ("broker.lan", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    """IPv6 addresses stand in brackets, which are not part of the host."""
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", "9092", "host", "host:", ":9092", "host:x", "host:-1", "host:65536", "host:²"])
def test_what_is_no_address_is_refused_with_what_was_given(text: str) -> None:
    """The message repeats the text, because it may come from a file."""
    with pytest.raises(UsageError, match=r"given '"):
        parse_listen(text)


def test_an_ipv6_address_without_brackets_is_refused_with_the_fix() -> None:
    """`::1:9092` could mean two things."""
    with pytest.raises(UsageError, match=r"in brackets, as in \[::1\]:9092"):
        parse_listen("::1:9092")


@given(st.text())
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    """Nothing else comes out of the parser."""
    try:
        host, port = parse_listen(text)
    except UsageError:
        return
    assert host
    assert 0 <= port <= 65535


@pytest.mark.parametrize("group", [BrokerOptions, KafkaOptions])
def test_names_of_flags_and_variables_are_distinct(group: type[OptionGroup]) -> None:
    """Each option is reachable by each way, and no other by the same name."""
    table = options_of(group)
    assert len({each.flag for each in table}) == len({each.environment for each in table}) == len(table)


def test_the_reference_pages_are_current() -> None:
    """The pages in the guide are what the tables say; run tools/generate_option_reference.py after changing one."""
    tool = Path(__file__).parents[2] / "tools" / "generate_option_reference.py"
    spec = importlib.util.spec_from_file_location("generate_option_reference", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    assert [page.path.read_text(encoding="utf-8") == page.text() for page in module.PAGES] == [True, True]

"""Flag over environment over file over default, and nothing unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.arguments import Parser
from anabranch.cli.broker import as_json, as_text
from anabranch.cli.config import ConfigFile, kafka_settings, read_file, resolve
from anabranch.core.errors import UsageError
from anabranch.core.options import BrokerOptions, KafkaOptions, options_of

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "ANABRANCH_BROKER_NODE_ID"


def broker_file(**values: object) -> ConfigFile:
    return ConfigFile("anabranch.toml", {"broker": values})


@pytest.mark.parametrize(
    ("flags", "environment", "file", "expected", "source"),
    [
        ({"node_id": "4"}, {VARIABLE: "3"}, broker_file(node_id=2), 4, "flag --node-id"),
        ({}, {VARIABLE: "3"}, broker_file(node_id=2), 3, f"environment {VARIABLE}"),
        ({}, {}, broker_file(node_id=2), 2, "file anabranch.toml"),
        ({}, {}, None, 1, "default"),
    ],
)
def test_the_nearest_source_wins_and_is_told(
    flags: dict[str, object], environment: dict[str, str], file: ConfigFile | None, expected: int, source: str
) -> None:
    """Flag over environment over file over default."""
    resolved = resolve(BrokerOptions, flags, environment, file)
    assert resolved.options.node_id == expected
    assert next(each for each in resolved.settings if each.option.name == "node_id").source == source


def test_a_wrong_value_is_refused_with_the_place_it_came_from() -> None:
    """Who sets a variable in one file and starts in another needs to know which to open."""
    with pytest.raises(UsageError, match=r"given 'x'.*\(from environment ANABRANCH_BROKER_NODE_ID\)"):
        resolve(BrokerOptions, {}, {VARIABLE: "x"}, None)
    with pytest.raises(UsageError, match=r"given '2'.*\(from file anabranch.toml\)"):
        resolve(BrokerOptions, {}, {}, broker_file(node_id="2"))


def test_a_misspelt_key_of_the_file_is_refused_with_the_nearest_name() -> None:
    """A key that is silently ignored costs an afternoon."""
    with pytest.raises(UsageError, match=r"unknown option segment-byte in \[broker\]; did you mean segment_bytes\?"):
        resolve(BrokerOptions, {}, {}, broker_file(**{"segment-byte": 1}))


def test_a_misspelt_variable_is_refused_with_the_nearest_name() -> None:
    """The environment is no place for typing errors either."""
    with pytest.raises(UsageError, match=r"ANABRANCH_BROKER_LISTN; did you mean ANABRANCH_BROKER_LISTEN\?"):
        resolve(BrokerOptions, {}, {"ANABRANCH_BROKER_LISTN": "127.0.0.1:1"}, None)


def test_variables_of_others_are_not_ours_to_judge() -> None:
    """Only names with the section's prefix are looked at."""
    environment = {"ANABRANCH_RUN_ENGINE": "async", "PATH": "/bin", "ANABRANCH_BROKERAGE": "x"}
    assert resolve(BrokerOptions, {}, environment, None).options == BrokerOptions()


def test_rules_between_options_hold_over_sources() -> None:
    """An address from a flag and one from the environment are judged together."""
    with pytest.raises(UsageError, match="advertise"):
        resolve(BrokerOptions, {"listen": "0.0.0.0:9092"}, {}, None)
    resolve(BrokerOptions, {"listen": "0.0.0.0:9092"}, {"ANABRANCH_BROKER_ADVERTISE": "a:1"}, None)


@given(
    st.builds(
        BrokerOptions,
        data_dir=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
        listen=st.integers(0, 65535).map(lambda port: f"[::1]:{port}"),
        advertise=st.none() | st.just("broker:9092"),
        flush=st.sampled_from(["always", "interval", "os"]),
        flush_interval_s=st.floats(0.001, 3600),
        auto_create=st.booleans(),
        retention_s=st.integers(-1, 10**9),
        retention_bytes=st.integers(-1, 2**62),
        rebalance_delay_s=st.floats(0, 300),
    )
)
def test_options_survive_the_way_over_the_command_line(options: BrokerOptions) -> None:
    """Table to flags to options is the identity, so another process can be started with the same options."""
    parser = Parser("broker", "", "", ())
    parser.add_table(options_of(BrokerOptions))
    typed = vars(parser.read(options.arguments()))
    assert resolve(BrokerOptions, typed, {}, None).options == options


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """Who names a file means it."""
    with pytest.raises(UsageError, match="cannot read the configuration file"):
        read_file(str(tmp_path / "missing.toml"))


def test_the_file_of_the_current_folder_is_read_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --config, ./anabranch.toml is read, and its absence is no error."""
    monkeypatch.chdir(tmp_path)
    assert read_file(None) is None
    (tmp_path / "anabranch.toml").write_text('[broker]\nflush = "os"\n[run]\nengine = "async"\n')
    assert resolve(BrokerOptions, {}, {}, read_file(None)).options.flush == "os"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[broker", "not valid TOML"),
        ("[brokr]\n", r"unknown section \[brokr\]; did you mean broker\?"),
        ("flush = 'os'\n", "flush stands outside of a section"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Nothing in the file is skipped."""
    path = tmp_path / "some.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_file(str(path))


def test_settings_of_librdkafka_pass_through_and_typed_ones_win() -> None:
    """TOML reads `linger.ms = 5` as a table; librdkafka gets its own name back."""
    written = {"bootstrap": "a:1", "linger": {"ms": 5}, "sasl.mechanism": "PLAIN", "enable": {"idempotence": False}}
    file = ConfigFile("f", {"kafka": written})
    assert kafka_settings(file, ["linger.ms=9", "sasl.password=a=b"]) == {
        "linger.ms": "9",
        "sasl.mechanism": "PLAIN",
        "enable.idempotence": "false",
        "sasl.password": "a=b",
    }
    assert resolve(KafkaOptions, {}, {}, file).options.bootstrap == "a:1"


def test_a_setting_without_a_value_is_refused() -> None:
    """`--kafka linger.ms 5` is a common slip."""
    with pytest.raises(UsageError, match="NAME=VALUE"):
        kafka_settings(None, ["linger.ms"])


def test_what_is_in_force_is_printed_aligned() -> None:
    """Names, values and sources stand in columns."""
    lines = as_text(resolve(BrokerOptions, {"flush": "os"}, {}, None).settings).splitlines()
    assert len(lines) == len(options_of(BrokerOptions))
    assert len({line.index(" = ") for line in lines}) == 1
    assert "flush                 = os                flag --flush" in lines
    assert "advertise             = none              default" in lines


def test_what_is_in_force_is_printed_as_json() -> None:
    """The same for programs."""
    import json

    shown = json.loads(as_json(resolve(BrokerOptions, {}, {VARIABLE: "7"}, None).settings))
    assert shown["node_id"] == {"value": 7, "source": f"environment {VARIABLE}"}
    assert shown["advertise"] == {"value": None, "source": "default"}

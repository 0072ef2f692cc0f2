"""What is in force, and from where: flag over environment over file over default.

`resolve` is pure: it is given what was typed, the environment and the file's content, and answers with the group of
options and the source of each value. Reading the file is `read_file`. A name that nobody knows is refused with the
nearest one that somebody does: a misspelt option that is silently ignored costs an afternoon.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from anabranch.core.errors import UsageError
from anabranch.core.options import KafkaOptions, Option, OptionGroup, Value, options_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GroupT = TypeVar("GroupT", bound=OptionGroup)

FILE_DEFAULT = "anabranch.toml"
SPARK_SECTION = "spark"
SECTIONS = ("broker", "run", "kafka", SPARK_SECTION)  # one file may serve several commands


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The sections of a configuration file, as they were written."""

    path: str
    sections: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in force, and where it came from."""

    option: Option
    value: Value
    source: str


@dataclass(frozen=True, slots=True)
class Resolved(Generic[GroupT]):
    """A valid group of options and the source of each value."""

    options: GroupT
    settings: tuple[Setting, ...]


def read_file(path: str | None) -> ConfigFile | None:
    """Read the named file, or ./anabranch.toml if it is there; a named file must exist."""
    chosen = Path(path or FILE_DEFAULT)
    if path is None and not chosen.is_file():
        return None
    import tomllib  # only those who have a file pay for it

    try:
        sections = tomllib.loads(chosen.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the configuration file {chosen}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration file {chosen} is not valid TOML: {error}") from error
    for name, content in sections.items():
        if not isinstance(content, dict):
            raise UsageError(
                f"{chosen}: {name} stands outside of a section; put it under [broker], [run], [kafka] or [spark]"
            )
        if name not in SECTIONS:
            raise UsageError(f"{chosen}: unknown section [{name}]{suggestion(name, SECTIONS)}")
    return ConfigFile(str(chosen), sections)


def resolve(
    group: type[GroupT],
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: ConfigFile | None,
) -> Resolved[GroupT]:
    """Return the options in force; `flags` has the texts (or booleans) that were typed, by option name."""
    table = options_of(group)
    section = _section(file, group, table)
    _refuse_unknown_variables(group.section, table, environment)
    settings = tuple(_setting(each, flags, environment, section, file) for each in table)
    return Resolved(group(**{each.option.name: each.value for each in settings}), settings)


def kafka_settings(file: ConfigFile | None, typed: Iterable[str]) -> dict[str, str]:
    """Return librdkafka's settings: those of [kafka], then those typed as `name=value`, which win."""
    known = {each.name for each in options_of(KafkaOptions)}
    written = file.sections.get(KafkaOptions.section, {}) if file else {}
    settings = {name: value for name, value in _flattened(written) if name not in known}
    for word in typed:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--kafka: given {word!r}, allowed is NAME=VALUE, as in linger.ms=5")
        settings[name.strip()] = value
    return settings


def spark_conf(file: ConfigFile | None, typed: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings: those of [spark], where `driver.memory` means spark.driver.memory, then those typed."""
    written = _flattened(file.sections.get(SPARK_SECTION, {})) if file else ()
    settings = {name if name.startswith("spark.") else f"spark.{name}": value for name, value in written}
    for word in typed:
        name, equals, value = word.partition("=")
        if not equals or not name.startswith("spark."):
            raise UsageError(f"--conf: given {word!r}, allowed is spark.NAME=VALUE, as in spark.driver.memory=2g")
        settings[name.strip()] = value
    return settings


def kafka_sources(file: ConfigFile | None, typed: Iterable[str]) -> dict[str, str]:
    """Return where each of librdkafka's settings was given."""
    written = _flattened(file.sections.get(KafkaOptions.section, {})) if file else ()
    sources = {name: f"[kafka] of {file.path}" for name, _ in written} if file else {}
    return {**sources, **{word.partition("=")[0].strip(): "--kafka" for word in typed}}


def suggestion(given: str, known: Iterable[str]) -> str:
    """Return '; did you mean X?' for the nearest known name, or the known names if none is near."""
    import difflib  # only for an error

    names = list(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"


def _setting(
    each: Option,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    section: Mapping[str, object],
    file: ConfigFile | None,
) -> Setting:
    typed = flags.get(each.name)
    source = "default"
    try:
        if typed is not None:
            source = f"flag {each.flag}"
            return Setting(each, each.parse(typed) if isinstance(typed, str) else each.check(typed), source)
        if each.environment in environment:
            source = f"environment {each.environment}"
            return Setting(each, each.parse(environment[each.environment]), source)
        if file and each.name in section:
            source = f"file {file.path}"
            return Setting(each, each.check(section[each.name]), source)
    except UsageError as error:
        raise UsageError(f"{error} (from {source})") from error
    return Setting(each, each.default, source)


def _section(file: ConfigFile | None, group: type[OptionGroup], table: tuple[Option, ...]) -> Mapping[str, object]:
    section = file.sections.get(group.section, {}) if file else {}
    if group is KafkaOptions:
        return section  # what we do not know there is librdkafka's
    known = [each.name for each in table]
    for name in section:
        if name not in known:
            near = suggestion(name.replace("-", "_"), known)
            raise UsageError(f"{file.path if file else ''}: unknown option {name} in [{group.section}]{near}")
    return section


def _refuse_unknown_variables(section: str, table: tuple[Option, ...], environment: Mapping[str, str]) -> None:
    known = [each.environment for each in table]
    for name in environment:
        if name.startswith(f"ANABRANCH_{section.upper()}_") and name not in known:
            raise UsageError(f"unknown environment variable {name}{suggestion(name, known)}")


def _flattened(section: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield `linger.ms` for what TOML reads as a table `linger` with a key `ms`."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value)

"""Find the command that was meant, load it when it is called, and teach when it was not found.

A command is named by module and function, not imported: `anabranch --help` and `anabranch broker` start without paying
for the imports of the others.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Command:
    """A command: a line that says what it is for, and `module:function`, which takes the words after its name."""

    sentence: str
    target: str

    def load(self) -> Callable[[list[str]], int]:
        """Import the module and return the function."""
        module, _colon, function = self.target.partition(":")
        return cast("Callable[[list[str]], int]", getattr(importlib.import_module(module), function))


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands under one name, with the help that lists them."""

    name: str
    sentence: str
    commands: Mapping[str, Command]
    examples: Sequence[str]

    def run(self, words: list[str]) -> int:
        """Run the command that the first word names."""
        if not words:
            sys.stderr.write(self.help())
            return 2
        if words[0] in {"-h", "--help", "help"}:
            sys.stdout.write(self.help())
            return 0
        command = self.commands.get(words[0])
        if command is None:
            raise UsageError(f"{self.name}: unknown command {words[0]!r}{self._nearest(words[0])}")
        return command.load()(words[1:])

    def help(self) -> str:
        """Return the text of `--help`."""
        width = max(len(name) for name in self.commands)
        rows = [f"  {name:<{width}}  {command.sentence}" for name, command in self.commands.items()]
        parts = [
            f"usage: {self.name} COMMAND [OPTION]...",
            self.sentence,
            "\n".join(["commands:", *rows]),
            "\n".join(["examples:", *(f"  {line}" for line in self.examples)]),
            f"`{self.name} COMMAND --help` explains a command.",
        ]
        return "\n\n".join(parts) + "\n"

    def _nearest(self, given: str) -> str:
        from anabranch.cli.config import suggestion

        return suggestion(given, self.commands)

"""Ask the processes of a group how they are: each answers on a socket in the group's state folder.

A socket that nobody listens on was left by a process that was killed: it is passed over.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.config import read_file, resolve
from anabranch.core.errors import UsageError
from anabranch.core.run_options import RunOptions

if TYPE_CHECKING:
    import argparse


def state_folder(typed: argparse.Namespace) -> Path:
    """Return the folder in which the processes of a group have their sockets, found as `anabranch run` finds it."""
    resolved = resolve(RunOptions, {"state_dir": typed.state_dir}, os.environ, read_file(typed.config))
    given = resolved.options.state_dir
    return Path(given) if given else Path(".anabranch") / typed.group


def ask_processes(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what each process that listens answered, and a sentence for each that should have answered and did not."""
    from anabranch.runtime.status import ask

    answers: list[dict[str, Any]] = []
    silent: list[str] = []
    for path in sorted(folder.glob("*.sock")):
        try:
            answers.append(ask(path))
        except (ConnectionRefusedError, FileNotFoundError):
            continue  # its process is gone
        except PermissionError as error:
            raise UsageError(f"{path} belongs to another user: run this command as that user") from error
        except TimeoutError:
            silent.append(
                f"Process {path.stem} does not answer: it is stopped (SIGSTOP), or an async handler blocks its event "
                "loop; make that one a plain `def`, which runs in a thread."
            )
        except (OSError, ValueError) as error:
            silent.append(f"Process {path.stem} gave no answer that can be read ({error}): is it of another version?")
    return answers, silent

"""Command lines: `s3n-mjx VERB …`, the same as `python -m s3n_mjx.VERB …`.

A user's mistake ends in one line on stderr and exit code 2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import pydantic
import tyro

from s3n_mjx.errors import Terminated, UserError

T = TypeVar("T")

VERBS = {
    "train": "train a policy",
    "eval": "evaluate a checkpoint",
    "play": "watch a policy in a window, or as a video",
    "export": "write a policy as ONNX, with an example controller",
    "compare": "train the paper's methods and compare their gaps to the reference",
    "replay": "replay a diverged training environment in C MuJoCo",
    "validate": "compare the legs' dynamics with the closed chain, without contact",
    "robot": "bring a robot of your own: what an MJCF says, and what is missing",
    "identify": "motors, delay and leg inertia from measured frequency responses",
}


def parse_arguments(cls: type[T], args: Sequence[str], prog: str) -> T:
    """``args`` as an instance of a dataclass; every field is a typed flag.

    Raises:
        UserError: what is wrong with them, in one line.
        SystemExit: help was asked for (code 0).
    """
    for each in _dataclasses_in(cls):
        if each.__doc__:
            each.__doc__ = _MARKUP.sub(r"`\1`", each.__doc__)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed: Any = tyro.cli(
                cls,
                args=list(args),
                prog=prog,
                config=(tyro.conf.EnumChoicesFromValues,),
            )
            return parsed
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        names = [part for part in first["loc"] if isinstance(part, str)] or [error.title]
        raise UserError(
            f"--{_flag(names[-1])}: {first['msg'].removeprefix('Value error, ')}"
            f" (got {first['input']!r})"
        ) from None
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(said.getvalue(), getattr(cls, "__name__", ""))) from None


# Sphinx's references, which docstrings may hold and which say nothing in a terminal.
_MARKUP = re.compile(r"(?::[a-z]+:`~?|``)([^`]+)``?")


def _dataclasses_in(hint: Any) -> set[type]:
    """Dataclasses that a type is made of, with those of their fields."""
    if not dataclasses.is_dataclass(hint):
        return set().union(*map(_dataclasses_in, get_args(hint)))
    assert isinstance(hint, type)
    return {hint}.union(*map(_dataclasses_in, get_type_hints(hint).values()))


# What tyro says where pydantic refused a value: of a nested dataclass by the name of its field,
# of the outermost one by that of its class.
_NESTED = re.compile(r"Error parsing (\S*): \d+ validation errors? for \S+ (\S+) (.*?) \[type")


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _one_line(boxed: str, outermost: str) -> str:
    """tyro's box of several lines as one: the message, and its nearest suggestion.

    Args:
        boxed: what tyro printed.
        outermost: name of the class that was parsed.
    """
    sections: list[list[str]] = [[]]
    for line in boxed.splitlines():
        text = line.strip().strip("│╭╮╰╯").strip()
        if not text or text.startswith("─ ") or line.strip().startswith(("╭", "╰")):
            continue
        if len(text) > 3 and set(text) <= {"─", "-"}:
            sections.append([])
        else:
            sections[-1].append(text)
    if "╭" not in boxed and len(sections) > 1:
        del sections[0]  # the title, which stands in the frame where there is one
    message = " ".join(sections[0]) or " ".join(boxed.split())
    # Of a value that may be one of several types tyro says Python's names of them, too.
    message = re.sub(r"\.? Got errors: .*", "", message)
    nested = _NESTED.match(message)
    if nested:
        prefix, field, reason = nested.groups()
        prefix = "" if prefix == outermost else prefix.removeprefix("config").strip(".")
        field = re.sub(r"\.\d+$", "", field)  # one of several values of a flag
        return f"--{_flag(f'{prefix}.{field}' if prefix else field)}: {reason}"
    for section in sections[1:]:
        if section and section[0].startswith("Perhaps you meant") and len(section) > 1:
            message += f"; perhaps you meant {section[1].split()[0]}"
    return message


def make_folder(path: Path, flag: str = "--out") -> None:
    """Make the folder that ``flag`` names, before any work is done.

    Raises:
        UserError: it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{flag}: {path} cannot be made ({error.strerror}); name another") from None
    if not os.access(path, os.W_OK):
        raise UserError(f"{flag}: {path} cannot be written; name another")


def run(main: Callable[[Sequence[str]], None], args: Sequence[str] | None = None) -> None:
    """Call ``main`` on the process's arguments; say a user's mistake in one line, exit 2."""
    try:
        main(sys.argv[1:] if args is None else args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # output piped into `head`
        raise SystemExit(0) from None
    except KeyboardInterrupt as stop:
        said, code = ("terminated", 143) if isinstance(stop, Terminated) else ("interrupted", 130)
        print(f"{said}{f', {stop}' if str(stop) else ''}", file=sys.stderr)
        raise SystemExit(code) from None


def python_command() -> str:
    """How a person starts this interpreter from the current folder, for commands to paste."""
    executable = Path(sys.executable)
    found = shutil.which("python")
    if (
        found
        and Path(found).resolve() == executable.resolve()
        and Path(found).parent == (executable.parent)
    ):
        return "python"
    with contextlib.suppress(ValueError):
        return str(executable.relative_to(Path.cwd()))
    return str(executable)


def main() -> None:
    """Entry point of the console script `s3n-mjx`."""
    usage = "usage: s3n-mjx VERB [options]\n" + "\n".join(
        f"  {name:<8} {text}" for name, text in VERBS.items()
    )
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(usage)
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    verb = sys.argv[1]

    def dispatch(args: Sequence[str]) -> None:
        if verb not in VERBS:
            raise UserError(f"unknown verb {verb!r}; known: {', '.join(VERBS)}")
        # A package keeps its command beside its other modules.
        module = "robot.commands" if verb == "robot" else verb
        importlib.import_module(f"s3n_mjx.{module}").main(args)

    run(dispatch, sys.argv[2:])

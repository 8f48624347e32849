"""YAML in and out of frozen dataclasses, with one clear line for whatever is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from s3n_mjx.errors import UserError

T = TypeVar("T")

# For every dataclass that is read from a file: a misspelt key must never be ignored.
STRICT = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)


def parse(cls: type[T], data: Any, source: str) -> T:
    """Validate ``data`` as ``cls``.

    Args:
        cls: a dataclass made with :data:`STRICT`.
        data: plain containers, as YAML and JSON give them.
        source: where it came from (file name), for the message.

    Raises:
        UserError: names source, key and reason.
    """
    try:
        return pydantic.TypeAdapter(cls).validate_python(data)
    except pydantic.ValidationError as error:
        raise UserError(_first_line(cls, error, source)) from None


_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def _first_line(cls: Any, error: pydantic.ValidationError, source: str) -> str:
    errors = error.errors()
    # A misspelt key is also a missing one; its own name helps more.
    first = next((e for e in errors if e["type"] in _UNKNOWN), errors[0])
    key = "".join(f"{part}." for part in first["loc"]).removesuffix(".")
    kind = first["type"]
    if kind in _UNKNOWN:
        reason = f"unknown key{_known_keys(cls, first['loc'][:-1])}"
    elif kind in ("missing", "missing_argument"):
        reason = "missing; add it"
    else:
        reason = first["msg"].removeprefix("Value error, ")
        if not isinstance(first["input"], (dict, list, tuple)) and not dataclasses.is_dataclass(
            first["input"]
        ):
            reason += f" (got {first['input']!r})"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{source}: {key}: {reason}{more}" if key else f"{source}: {reason}{more}"


def _known_keys(cls: Any, location: tuple[int | str, ...]) -> str:
    if location or not dataclasses.is_dataclass(cls):
        return "; remove it or correct its name"
    return f"; known: {', '.join(field.name for field in dataclasses.fields(cls))}"


def read_yaml(path: Path) -> Any:
    """Plain containers of a YAML file.

    Raises:
        UserError: no such file, not text, or not YAML.
    """
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        detail = " ".join(str(error).split())
        raise UserError(f"{path}: not valid YAML ({detail})") from None


def to_plain(value: Any) -> Any:
    """Containers, numbers and strings only, as YAML and JSON take them."""
    return pydantic.TypeAdapter(type(value)).dump_python(value, mode="json")


def dump_yaml(value: Any) -> str:
    """YAML text of a dataclass, keys in the order of its fields."""
    return yaml.safe_dump(to_plain(value), sort_keys=False, width=100)

"""YAML in and out of frozen dataclasses, with one clear line for whatever is wrong."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml
from annotated_types import Ge, Gt, Le, Lt

from s3n_mjx.errors import UserError

T = TypeVar("T")

# For every dataclass that is read from a file: a misspelt key must never be ignored.
STRICT = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)

# Numbers of descriptions and configs. None means anything near the limit, and below it squares
# and products of three stay finite, in a simulation's float32, too.
LARGEST = 1e12
Number = Annotated[float, Ge(-LARGEST), Le(LARGEST)]
Positive = Annotated[float, Gt(0), Le(LARGEST)]
NonNegative = Annotated[float, Ge(0), Le(LARGEST)]
# Folders of checkpoints are sorted by their steps, in twelve digits.
Count = Annotated[int, Gt(0), Lt(10**12)]
# What JAX takes, with room for the seeds that a resumed run derives.
Seed = Annotated[int, Ge(0), Lt(2**31)]


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
            reason += f" (got {_shown(first['input'])})"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{source}: {key}: {reason}{more}" if key else f"{source}: {reason}{more}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes out no number of thousands of digits
        return f"a number of {value.bit_length()} bits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _known_keys(cls: Any, location: tuple[int | str, ...]) -> str:
    if location or not dataclasses.is_dataclass(cls):
        return "; remove it or correct its name"
    return f"; known: {', '.join(field.name for field in dataclasses.fields(cls))}"


class _Loader(yaml.SafeLoader):
    """YAML as its standard has it: PyYAML itself lets a key that is there twice override."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {_shown(key.value)} is there twice", problem_mark=key.start_mark
                )
            seen.add((key.tag, key.value))
        return node


_MERGE = "tag:yaml.org,2002:merge"
# PyYAML's constructors raise what Python does on text such as `2026-13-45`, `!!int ''`,
# `!!bool x` or `[[[[[...`.
_NOT_CONSTRUCTED = (ValueError, LookupError, ArithmeticError, AttributeError, TypeError)
_LARGEST_TREE = 1e6  # values; a checkpoint has a few thousand


def _size(value: Any, sizes: dict[int, float]) -> float:
    """Values in a tree, each as often as aliases repeat it; infinite where one holds itself.

    Args:
        value: of plain containers.
        sizes: of containers by their `id`, for those that are met again.
    """
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = math.inf  # to one that it holds
        children = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_size(child, sizes) for child in children)
    return sizes[id(value)]


def read_yaml(path: Path) -> Any:
    """Plain containers of a YAML file.

    Raises:
        UserError: no such file, not text, not YAML, a key is in a mapping twice, or aliases
            repeat themselves without end.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: not text, or NUL in the path
        raise UserError(f"{path}: cannot be read ({error})") from None
    try:
        data = yaml.load(text, _Loader)
        size = _size(data, {})
    except yaml.YAMLError as error:
        detail = " ".join(str(error).split())
        raise UserError(f"{path}: not valid YAML ({detail})") from None
    except RecursionError:
        raise UserError(f"{path}: not valid YAML (nested too deeply)") from None
    except _NOT_CONSTRUCTED as error:
        raise UserError(f"{path}: not valid YAML (a value of another type: {error})") from None
    if size > _LARGEST_TREE:
        raise UserError(f"{path}: aliases repeat too much, or hold themselves; write it out")
    return data


def to_plain(value: Any) -> Any:
    """Containers, numbers and strings only, as YAML and JSON take them."""
    return pydantic.TypeAdapter(type(value)).dump_python(value, mode="json")


def dump_yaml(value: Any) -> str:
    """YAML text of a dataclass, keys in the order of its fields."""
    return yaml.safe_dump(to_plain(value), sort_keys=False, width=100)

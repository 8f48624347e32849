"""The table of a measured log, and its way in and out of a CSV, NPZ or Parquet file.

Here a log is only named columns of numbers; what they have to be is said in `log_checks.py`, and
what they mean in `logs.py`. The format is described in docs/logs.md.
"""

import csv
import importlib
import io
import itertools
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.recording import FloatArray
from s3n_mjx.files import written_whole

TIME = "time_s"
COMMAND = "command/"
_META = "meta/"  # before a key, in files that have only arrays


@dataclass(frozen=True)
class Group:
    """Columns that a log has all of or none of; together they fill a field of Recording."""

    field: str
    columns: tuple[str, ...]
    foot: int | None = None  # which foot's part of the field, where each foot is a group

    def part(self, values: FloatArray) -> FloatArray:
        """This group's view of the field, shape (T, len(columns))."""
        return values if self.foot is None else values[:, self.foot]


def log_groups(joint_names: Sequence[str], foot_names: Sequence[str]) -> list[Group]:
    """Every group of a robot's log but the commands, whose names are free."""

    def joints(field: str, unit: str) -> Group:
        return Group(field, tuple(f"{field}/{name}_{unit}" for name in joint_names))

    def axes(field: str, unit: str) -> Group:
        return Group(field, tuple(f"{field}/{axis}_{unit}" for axis in "xyz"))

    return [
        joints("joint_position", "rad"),
        joints("joint_velocity", "rad_s"),
        joints("motor_torque", "n_m"),
        axes("base_position", "m"),
        Group("base_quaternion", tuple(f"base_quaternion/{part}" for part in "wxyz")),
        axes("base_linear_velocity", "m_s"),
        axes("base_angular_velocity", "rad_s"),
        *(
            Group("foot_force", tuple(f"foot_force/{name}/{axis}_n" for axis in "xyz"), foot=i)
            for i, name in enumerate(foot_names)
        ),
    ]


@dataclass(frozen=True, eq=False)
class LogTable:
    """A log as its file has it.

    Attributes:
        path: of the file, for messages.
        columns: by name, each of shape (T,) with T at least 1.
        meta: numbers by key.
        lines: line of each sample, as an editor counts them; empty where a file has no lines.
    """

    path: Path
    columns: dict[str, FloatArray]
    meta: dict[str, float]
    lines: Sequence[int] = ()

    def where(self, sample: int) -> str:
        """Place of a sample in the file, for messages."""
        return f"line {self.lines[sample]}" if self.lines else f"sample {sample} (the first is 0)"

    def error(self, what: str, problem: str) -> UserError:
        """One line; `what` is a column or a key."""
        return UserError(f"{self.path}: {what}: {problem}")

    def stack(self, names: Sequence[str]) -> FloatArray:
        """Columns side by side, shape (T, len(names))."""
        result = np.empty((self.columns[TIME].size, len(names)))
        for i, name in enumerate(names):
            result[:, i] = self.columns[name]
        return result


def read_table(path: Path) -> LogTable:
    """Columns and metadata of a file, by its suffix; only their form is checked.

    Raises:
        UserError: no such file, or not one of a table of numbers.
    """
    read, _ = _format(path)
    try:
        return read(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such log; check the path") from None
    except OSError as error:
        reason = error.strerror or _on_one_line(error)
        raise UserError(f"{path}: cannot be read ({reason}); check the path") from None


def write_table(path: Path, columns: Mapping[str, FloatArray], meta: Mapping[str, float]) -> Path:
    """Write columns of shape (T,) and metadata, whole or not at all; return the path.

    Raises:
        UserError: the suffix is none of a log, or pyarrow is missing for `.parquet`.
    """
    _, write = _format(path)
    with written_whole(path) as temporary:
        write(temporary, columns, meta)
    return path


def _format(path: Path) -> tuple[Callable[..., LogTable], Callable[..., None]]:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _read_csv, _write_csv
    if suffix == ".npz":
        return _read_npz, _write_npz
    if suffix == ".parquet":
        _pyarrow(path)  # refused under the name asked for, before anything is written
        return _read_parquet, _write_parquet
    raise UserError(f"{path}: a log ends in .csv, .npz or .parquet; convert or rename it")


def shown(text: str) -> str:
    """Foreign text in a message: quoted, on one line, not too long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _read_csv(path: Path) -> LogTable:
    try:
        text = path.read_bytes().decode("utf-8-sig")  # Excel writes a byte order mark
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: no text in UTF-8 ({error}); is it a CSV file?") from None
    lines = io.StringIO(text, newline="")
    meta: dict[str, float] = {}
    header_line = ""
    skipped = 0
    for line in lines:
        if line.strip() and not line.startswith("#"):
            header_line = line
            break
        skipped += 1
        if line.strip(" #\t\r\n") and not line.startswith("##"):
            _read_meta_line(path, skipped, line, meta)
    reader = csv.reader(itertools.chain([header_line], lines))
    values, numbers = array("d"), array("q")
    try:
        header = _checked_header(path, next(reader))
        for row in reader:
            if not row:
                continue
            line = skipped + reader.line_num
            if len(row) != len(header):
                raise UserError(
                    f"{path}: line {line}: {len(row)} cells, the header has {len(header)};"
                    " complete the line, or drop it"
                )
            try:
                values.extend(map(float, row))
            except ValueError:
                name, cell = next(
                    (n, c) for n, c in zip(header, row, strict=True) if not _is_number(c)
                )
                what = f"{shown(cell)} is no number" if cell.strip() else "the cell is empty"
                raise UserError(f"{path}: line {line}: {shown(name)}: {what}; correct it") from None
            numbers.append(line)
    except csv.Error as error:
        line = skipped + reader.line_num
        raise UserError(f"{path}: line {line}: no CSV ({error}); correct it") from None
    if not numbers:
        raise UserError(f"{path}: has a header but no samples; record the trial anew")
    cells = np.frombuffer(values, dtype=np.float64).reshape(len(numbers), len(header))
    columns = {name: cells[:, i] for i, name in enumerate(header)}
    return LogTable(path, columns, meta, lines=numbers)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_meta_line(path: Path, number: int, line: str, meta: dict[str, float]) -> None:
    """Add what a line `# key: number` says."""
    key, _, value = (part.strip() for part in line[1:].partition(":"))
    if not key or not _is_number(value):
        raise UserError(
            f"{path}: line {number}: {shown(line.strip())} is not '# key: number'; correct it, or"
            " begin a remark with '##'"
        )
    if key in meta:
        raise UserError(f"{path}: line {number}: key {shown(key)} is there twice; remove one")
    meta[key] = float(value)


def _checked_header(path: Path, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if not any(header):
        raise UserError(f"{path}: is empty; record the trial anew")
    if all(_is_number(name) for name in header):
        raise UserError(f"{path}: the line of column names is missing; write it above the numbers")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise UserError(f"{path}: columns are not separated by commas; write a comma between them")
    if "" in header:
        raise UserError(
            f"{path}: column {header.index('') + 1} has no name; name it, or remove a comma"
        )
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path}: column {shown(twice)} is there twice; remove one")
    return header


def _write_csv(path: Path, columns: Mapping[str, FloatArray], meta: Mapping[str, float]) -> None:
    # A float's repr is the shortest text that reads back as the same number; csv writes it, too.
    with open(path, "w", encoding="utf-8", newline="") as file:
        for key, value in meta.items():
            file.write(f"# {key}: {repr(float(value)).removesuffix('.0')}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(np.stack(list(columns.values()), axis=1).tolist())


def _read_npz(path: Path) -> LogTable:
    try:
        # Opened here, since numpy leaves its own handle open on a file cut short.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            content = {name: np.asarray(file[name]) for name in file.files}
    except OSError:
        raise
    except Exception as error:  # zip, zlib and numpy each have their own for a broken file
        raise UserError(f"{path}: no npz file ({_on_one_line(error)}); write it anew") from None
    return _table(path, content)


def _write_npz(path: Path, columns: Mapping[str, FloatArray], meta: Mapping[str, float]) -> None:
    content = {**columns, **{_META + key: np.float64(value) for key, value in meta.items()}}
    with open(path, "wb") as file:
        np.savez_compressed(file, **content)


def _read_parquet(path: Path) -> LogTable:
    _, parquet = _pyarrow(path)
    try:
        table = parquet.read_table(path)
        content = {name: table[name].to_numpy() for name in table.column_names}
        stored = table.schema.metadata or {}
        for key, value in stored.items():
            if key.startswith(_META.encode()):  # others are of the program that wrote it
                content[key.decode()] = np.asarray(float(value))
    except OSError:
        raise
    except Exception as error:  # pyarrow has a dozen for a broken file
        raise UserError(f"{path}: no Parquet ({_on_one_line(error)}); write it anew") from None
    return _table(path, content)


def _write_parquet(
    path: Path, columns: Mapping[str, FloatArray], meta: Mapping[str, float]
) -> None:
    pyarrow, parquet = _pyarrow(path)
    table = pyarrow.table({name: np.ascontiguousarray(values) for name, values in columns.items()})
    stored = {_META + key: repr(value) for key, value in meta.items()}
    parquet.write_table(table.replace_schema_metadata(stored), path)


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(
            f"{path}: Parquet needs pyarrow; install it (pip install pyarrow), or convert the log"
            " to .csv or .npz"
        ) from None


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _table(path: Path, content: Mapping[str, np.ndarray]) -> LogTable:
    """Columns and `meta/key` scalars as a file of arrays has them, checked."""
    columns: dict[str, FloatArray] = {}
    meta: dict[str, float] = {}
    for name, values in content.items():
        what = f"{path}: {shown(name)}"
        if values.dtype.kind not in "iuf":
            raise UserError(f"{what}: holds {values.dtype}, not numbers; convert it")
        if name.startswith(_META):
            if values.ndim != 0:
                raise UserError(f"{what}: shape {values.shape}, expected a scalar; convert it")
            meta[name.removeprefix(_META)] = float(values)
        elif values.ndim != 1:
            raise UserError(
                f"{what}: shape {values.shape}, expected (T,); give each column by itself"
            )
        else:
            columns[name] = values.astype(np.float64)
    if not columns or max(column.size for column in columns.values()) == 0:
        raise UserError(f"{path}: is empty; record the trial anew")
    n = columns[TIME].size if TIME in columns else None
    for name, column in columns.items():
        if n is not None and column.size != n:
            raise UserError(
                f"{path}: {shown(name)}: {column.size} values, {TIME} has {n}; give one for"
                " each time"
            )
    return LogTable(path, columns, meta)

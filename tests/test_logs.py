"""Measured logs: what is written is read back, what is wrong is said, times meet at the onset."""

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.logs import common_time, read_log, resample, write_log
from s3n_mjx.evaluation.recording import Recording

JOINTS = ("hip", "knee")
FEET = ("left", "right")
FREQUENCY = 5.0
OMEGA = 2.0 * np.pi * FREQUENCY
DOCS = Path(__file__).parents[1] / "docs" / "logs.md"


def pitching(time, force=(20.0, 30.0), lag=0.3, **fields) -> Recording:
    """A base that pitches as 0.08 sin(w t - lag); no other number is a round one."""
    time = np.asarray(time, dtype=float)
    n = time.size
    rng = np.random.default_rng(7)
    pitch, rate = 0.08 * np.sin(OMEGA * time - lag), 0.08 * OMEGA * np.cos(OMEGA * time - lag)
    zero = np.zeros(n)
    position = np.stack([0.1 * time, zero, 0.3 + 0.01 * np.sin(time)], axis=1)
    quaternion = np.stack([np.cos(pitch / 2), zero, np.sin(pitch / 2), zero], axis=1)
    joints = np.stack([np.sin(3.0 * time), -np.cos(3.0 * time)], axis=1)
    foot_force = rng.normal(size=(n, 2, 3)) / 3.0
    foot_force[:, :, 2] += force
    content = {
        "joint_names": JOINTS,
        "foot_names": FEET,
        "time": time,
        "joint_position": joints,
        "joint_velocity": rng.normal(size=(n, 2)),
        "motor_torque": rng.normal(size=(n, 2)),
        "base_position": position,
        "base_quaternion": quaternion,
        "base_linear_velocity": rng.normal(size=(n, 3)),
        "base_angular_velocity": np.stack([zero, rate, zero], axis=1),
        "foot_force": foot_force,
        "qpos": np.concatenate([position, quaternion, joints], axis=1),
        "command": {
            "pitch_rad": 0.1 * np.sin(OMEGA * time),
            "pitch_rate_rad_s": 0.1 * OMEGA * np.cos(OMEGA * time),
        },
        "meta": {"frequency_hz": FREQUENCY, "amplitude_rad": 0.1, "tiny": 1e-300 / 3.0},
    }
    return Recording(**(content | fields))


def assert_same(a: Recording, b: Recording) -> None:
    for name in Recording.array_names():
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert (a.joint_names, a.foot_names) == (b.joint_names, b.foot_names)
    assert a.command.keys() == b.command.keys()
    for name in a.command:
        np.testing.assert_array_equal(a.command[name], b.command[name], err_msg=name)
    assert (a.meta, a.fell) == (b.meta, b.fell)


# --- logs by hand, so that the format is not only what write_log makes it ----------------------


def good_log(n=60, dt=0.002) -> tuple[dict, dict]:
    """Columns and metadata, every group there, as docs/logs.md has them."""
    t = dt * np.arange(n)
    pitch = 0.1 * np.sin(OMEGA * t)
    one, zero = np.ones(n), np.zeros(n)
    columns = {
        "time_s": 3.0 + t,
        "joint_position/hip_rad": 0.4 + 0.1 * np.sin(OMEGA * t),
        "joint_position/knee_rad": -0.8 * one,
        "joint_velocity/hip_rad_s": 0.1 * OMEGA * np.cos(OMEGA * t),
        "joint_velocity/knee_rad_s": zero,
        "motor_torque/hip_n_m": 3.0 * one,
        "motor_torque/knee_n_m": -4.0 * one,
        "base_position/x_m": zero,
        "base_position/y_m": zero,
        "base_position/z_m": 0.3 * one,
        "base_quaternion/w": np.cos(pitch / 2),
        "base_quaternion/x": zero,
        "base_quaternion/y": np.sin(pitch / 2),
        "base_quaternion/z": zero,
        "base_linear_velocity/x_m_s": zero,
        "base_linear_velocity/y_m_s": zero,
        "base_linear_velocity/z_m_s": zero,
        "base_angular_velocity/x_rad_s": zero,
        "base_angular_velocity/y_rad_s": 0.1 * OMEGA * np.cos(OMEGA * t),
        "base_angular_velocity/z_rad_s": zero,
    }
    for foot, load in zip(FEET, (20.0, 30.0), strict=True):
        columns |= {f"foot_force/{foot}/{a}_n": f * one for a, f in zip("xyz", (1.0, 0.0, load))}  # noqa: B905
    columns["command/pitch_rad"] = pitch
    return columns, {"format": 1, "onset_s": 3.0, "frequency_hz": 5.0}


def csv_text(columns: dict, meta: dict) -> str:
    rows = zip(*(np.asarray(c).tolist() for c in columns.values()), strict=True)
    lines = [f"# {key}: {value}" for key, value in meta.items()]
    lines += [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    return "\n".join(lines) + "\n"


def save(folder: Path, suffix: str, columns: dict, meta: dict) -> Path:
    path = folder / f"trial{suffix}"
    if suffix == ".csv":
        path.write_text(csv_text(columns, meta))
    else:
        with open(path, "wb") as file:
            np.savez(file, **columns, **{f"meta/{key}": value for key, value in meta.items()})
    return path


def refusal(path: Path, **kwargs) -> str:
    with pytest.raises(UserError) as raised:
        read_log(path, JOINTS, FEET, **kwargs)
    message = str(raised.value)
    assert message.isprintable()  # so it is one line, too
    assert str(path) in message
    return message


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_a_log_by_hand_becomes_a_recording(tmp_path, suffix):
    columns, meta = good_log()
    # Columns in another order, the robot's names in another order: names count, not places.
    path = save(tmp_path, suffix, dict(reversed(columns.items())), meta)
    rec = read_log(path, JOINTS[::-1], FEET[::-1], torque_limit=[4.0, 3.0])
    assert rec.joint_names == ("knee", "hip")
    np.testing.assert_allclose(rec.time, 0.002 * np.arange(60), atol=1e-12)
    np.testing.assert_array_equal(rec.joint_position[:, 0], -0.8)
    np.testing.assert_array_equal(rec.joint_velocity[:, 1], columns["joint_velocity/hip_rad_s"])
    np.testing.assert_array_equal(rec.motor_torque, np.tile([-4.0, 3.0], (60, 1)))
    np.testing.assert_array_equal(rec.foot_force[0], [[1.0, 0.0, 30.0], [1.0, 0.0, 20.0]])
    np.testing.assert_array_equal(rec.base_position[0], [0.0, 0.0, 0.3])
    np.testing.assert_allclose(rec.pitch, columns["command/pitch_rad"], atol=1e-12)
    np.testing.assert_array_equal(rec.command["pitch_rad"], columns["command/pitch_rad"])
    np.testing.assert_allclose(rec.pitch_rate, columns["base_angular_velocity/y_rad_s"])
    np.testing.assert_array_equal(rec.qpos[:, :3], rec.base_position)
    np.testing.assert_array_equal(rec.qpos[:, 3:7], rec.base_quaternion)
    np.testing.assert_array_equal(rec.qpos[:, 7:], rec.joint_position)
    assert rec.meta == {"frequency_hz": 5.0}
    assert rec.fell is False


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_only_time_and_joints_are_required(tmp_path, suffix):
    columns, _ = good_log()
    kept = {name: columns[name] for name in columns if name.startswith("joint_position")}
    kept["time_s"] = 0.002 * np.arange(60)
    rec = read_log(save(tmp_path, suffix, kept, {}), JOINTS, FEET, torque_limit=[1.0, 1.0])
    assert rec.qpos.shape == (60, 0)
    assert rec.command == rec.meta == {}
    for name in set(Recording.array_names()) - {"time", "joint_position", "qpos"}:
        assert np.isnan(getattr(rec, name)).all(), name


def test_a_foot_without_a_plate_is_nan_alone(tmp_path):
    columns, meta = good_log()
    left = {name: c for name, c in columns.items() if "foot_force/right" not in name}
    rec = read_log(save(tmp_path, ".csv", left, meta), JOINTS, FEET)
    assert np.isnan(rec.foot_force[:, 1]).all()
    np.testing.assert_array_equal(rec.foot_force[0, 0], [1.0, 0.0, 20.0])


def test_csv_of_other_programs_is_read(tmp_path):
    """Byte order mark, CRLF, blank lines, blanks around names and numbers, remarks, quotes."""
    path = tmp_path / "Trial.CSV"
    path.write_bytes(
        b'\xef\xbb\xbf## third try: at 12:30\r\n#\r\n#onset_s :0.5\r\n\r\n"time_s", joint_position/'
        b"hip_rad ,joint_position/knee_rad\r\n0.5, 1e-1 ,2\r\n\r\n0.75,+3,-4.\r\n\r\n"
    )
    with pytest.raises(UserError, match="milliseconds"):  # which also shows the times as read
        read_log(path, JOINTS, FEET)
    path.write_bytes(path.read_bytes().replace(b"0.75", b"0.51"))
    rec = read_log(str(path), JOINTS, FEET)
    np.testing.assert_allclose(rec.time, [0.0, 0.01])
    np.testing.assert_array_equal(rec.joint_position, [[0.1, 2.0], [3.0, -4.0]])


def test_the_example_of_the_documentation_is_a_log(tmp_path):
    if not DOCS.is_file():
        pytest.skip("documentation is not packaged")
    text = DOCS.read_text()
    (example,) = re.findall(r"```csv\n(.*?)```", text, flags=re.DOTALL)
    assert len(example.splitlines()) == 5
    path = tmp_path / "example.csv"
    path.write_text(example)
    rec = read_log(path, JOINTS, FEET)
    np.testing.assert_allclose(rec.time, [0.0, 0.001], atol=1e-9)
    np.testing.assert_allclose(rec.command["pitch_rad"], 0.1 * np.sin(OMEGA * rec.time), atol=1e-6)
    # Every group of the format is in the table of columns.
    columns, _ = good_log()
    for name in columns:
        group = name.partition("/")[0]
        assert f"`{group}" in text, name


# --- written and read again -----------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_a_recording_written_and_read_again_is_the_same(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    rec = pitching(0.7 + 0.003 * np.arange(600) / 1.0000001, fell=True)
    path = write_log(rec, tmp_path / "new" / f"trial{suffix}")
    assert [p.name for p in path.parent.iterdir()] == [f"trial{suffix}"]
    again = read_log(path, JOINTS, FEET)
    assert_same(again, rec)
    # Identical, not close: a log must not move a figure in its last digit.
    assert metrics.pitch_metrics([again], 0.2) == metrics.pitch_metrics([rec], 0.2)
    simulated = pitching(0.003 * np.arange(900), force=(21.0, 33.0), lag=0.1)
    np.testing.assert_array_equal(
        metrics.grf_norm_rmse(simulated, again), metrics.grf_norm_rmse(simulated, rec)
    )
    np.testing.assert_array_equal(
        metrics.grf_norm_phase_rmse(simulated, again), metrics.grf_norm_phase_rmse(simulated, rec)
    )


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_what_is_nan_is_left_out_and_comes_back_as_nan(tmp_path, suffix):
    n = 30
    whole = pitching(0.003 * np.arange(n))
    force = np.array(whole.foot_force)
    force[:, 0] = np.nan
    rec = replace(
        whole,
        joint_velocity=np.full((n, 2), np.nan),
        base_quaternion=np.full((n, 4), np.nan),
        foot_force=force,
        qpos=np.empty((n, 0)),
        command={**whole.command, "nothing": np.full(n, np.nan)},
        meta={"frequency_hz": FREQUENCY, "unknown": np.nan},
    )
    again = read_log(write_log(rec, tmp_path / f"trial{suffix}"), JOINTS, FEET)
    expected = replace(rec, command=whole.command, meta={"frequency_hz": FREQUENCY})
    assert_same(again, expected)


def test_write_log_refuses_what_a_log_cannot_hold(tmp_path):
    rec = pitching(0.003 * np.arange(9))

    def hole(name: str, value: float, columns=np.s_[4:]) -> Recording:
        array = np.array(getattr(rec, name))
        array[columns] = value
        return replace(rec, **{name: array})

    def commands(name: str) -> Recording:
        return replace(rec, command={name: rec.time})

    bad = {
        "joint_position/hip_rad": hole("joint_position", np.nan, np.s_[:]),
        "motor_torque/hip_n_m": hole("motor_torque", np.nan),
        "motor_torque/knee_n_m": hole("motor_torque", np.nan, np.s_[:, 1]),
        "base_position/x_m": hole("base_position", np.inf, np.s_[:]),
        "foot_force/left/x_n": hole("foot_force", np.nan),
        "speed": replace(rec, meta={"speed": np.inf}),
        "onset_s": replace(rec, meta={"onset_s": 1.0}),
        "Onset": replace(rec, meta={"Onset": 1.0}),
        "a:b": replace(rec, meta={"a:b": 1.0}),
        "#x": replace(rec, meta={"#x": 1.0}),
        "two\\\\nlines": commands("two\nlines"),
        "command/": commands(""),
        "command/blank ": commands("blank "),
    }
    for match, recording in bad.items():
        with pytest.raises(ValueError, match=match):
            write_log(recording, tmp_path / "trial.csv")
    for name in ("trial.txt", "trial"):
        with pytest.raises(UserError, match=r"\.csv, \.npz or \.parquet"):
            write_log(rec, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "trial.parquet"
    with pytest.raises(UserError, match=r"install.*pyarrow.*\.csv or \.npz"):
        write_log(pitching(0.003 * np.arange(9)), path)
    path.write_bytes(b"PAR1")
    assert "pip install pyarrow" in refusal(path)


# --- bad logs -----------------------------------------------------------------------------


def _set(column: str, values, at=slice(None)):
    def change(columns: dict, meta: dict) -> None:
        changed = np.array(columns[column])
        changed[at] = values(changed[at]) if callable(values) else values
        columns[column] = changed

    return change


def _scale(group: str, factor: float):
    def change(columns: dict, meta: dict) -> None:
        for name in columns:
            if name.startswith(group):
                columns[name] = factor * columns[name]

    return change


def _drop(*names: str):
    def change(columns: dict, meta: dict) -> None:
        for name in names:
            del columns[name]

    return change


def _rename(old: str, new: str):
    def change(columns: dict, meta: dict) -> None:
        columns[new] = columns.pop(old)

    return change


def _meta(**values):
    def change(columns: dict, meta: dict) -> None:
        meta.update(values)

    return change


def _no_onset(columns: dict, meta: dict) -> None:
    del meta["onset_s"]


def _xyzw(columns: dict, meta: dict) -> None:
    w, x, y, z = (columns[f"base_quaternion/{part}"] for part in "wxyz")
    for part, values in zip("wxyz", (x, y, z, w), strict=True):
        columns[f"base_quaternion/{part}"] = values


HIP = "joint_position/hip_rad"
# A fault, and what its message has to say; {9} is where sample 9 is in the file.
BAD_LOGS = {
    "no time": (_drop("time_s"), ["'time_s' is missing", "add it"]),
    "joint missing": (_drop("joint_position/knee_rad"), ["'joint_position/knee_rad' is missing"]),
    "joints missing": (
        _drop(HIP, "joint_position/knee_rad"),
        [f"'{HIP}' is missing (and 1 more)"],
    ),
    "velocity of one joint": (
        _drop("joint_velocity/hip_rad_s"),
        ["'joint_velocity/hip_rad_s' is missing", "or none"],
    ),
    "two axes": (_drop("base_position/y_m"), ["'base_position/y_m' is missing", "or none"]),
    "a vertical plate": (
        _drop("foot_force/right/x_n", "foot_force/right/y_n"),
        ["'foot_force/right/x_n' is missing (and 1 more)"],
    ),
    "degrees in the name": (
        _rename(HIP, "joint_position/hip_deg"),
        ["unknown column 'joint_position/hip_deg'", f"did you mean '{HIP}'?"],
    ),
    "misspelt group": (
        _rename("command/pitch_rad", "comand/pitch_rad"),
        ["'comand/pitch_rad'", "did you mean 'command/pitch_rad'?"],
    ),
    "foreign column": (_rename("command/pitch_rad", "battery"), ["'battery'", "docs/logs.md"]),
    "command without a name": (_rename("command/pitch_rad", "command/"), ["unknown", "'command/'"]),
    "NaN": (
        _set("motor_torque/hip_n_m", np.nan, slice(9, 12)),
        ["motor_torque/hip_n_m", "3 of 60 values are NaN", "{9}"],
    ),
    "infinity": (_set("command/pitch_rad", np.inf, 9), ["command/pitch_rad", "1 of 60", "{9}"]),
    "NaN time": (_set("time_s", np.nan, 9), ["time_s", "1 of 60", "{9}"]),
    "time repeated": (
        _set("time_s", 3.016, slice(8, 10)),
        ["time_s", "does not increase", "{9}", "3.016 s, then 3.016 s"],
    ),
    "time back": (_set("time_s", 2.0, 9), ["{9}", "3.016 s, then 2 s"]),
    "clock set": (
        _set("time_s", lambda t: t + 0.0105, slice(9, None)),
        ["time_s", "jumps by 0.0125 s", "{9}", "3.016 to 3.0285 s", "median step is 0.002 s"],
    ),
    "milliseconds": (_scale("time_s", 1e3), ["time_s", "median step 2 s", "milliseconds"]),
    "microseconds": (_scale("time_s", 1e6), ["time_s", "microseconds"]),
    "nanoseconds": (_scale("time_s", 1e9), ["time_s", "nanoseconds"]),
    "no onset": (_no_onset, ["onset_s", "missing", "covers 3 to 3.118 s"]),
    "onset after the log": (_meta(onset_s=4.0), ["onset_s", "4 s", "covers 3 to 3.118 s"]),
    "onset long before": (_meta(onset_s=-1e9), ["onset_s", "-1000000000 s"]),
    "onset NaN": (_meta(onset_s=np.nan), ["onset_s", "no finite number"]),
    "onset in ms": (_meta(onset_ms=3000.0), ["'onset_ms'", "did you mean 'onset_s'?"]),
    "next format": (_meta(format=2), ["format", "is 2", "reads 1"]),
    "fell": (_meta(fell=0.5), ["fell", "0.5"]),
    "degrees": (_scale("joint_position", 57.3), [HIP, "looks like degrees", "line|sample"]),
    "degrees per second": (
        _scale("joint_velocity", 5730.0),
        ["joint_velocity/hip_rad_s", "looks like degrees per second"],
    ),
    "gyroscope in degrees": (
        _scale("base_angular_velocity", 57.3),
        ["base_angular_velocity/y_rad_s", "looks like degrees per second"],
    ),
    "mm/s": (
        _set("base_linear_velocity/x_m_s", 120.0, 9),
        ["base_linear_velocity/x_m_s", "120 m/s", "millimetres per second", "{9}"],
    ),
    "mm": (_scale("base_position", 1e3), ["base_position/z_m", "median 300 m", "millimetres"]),
    "N mm": (
        _scale("motor_torque", 1e3),
        ["motor_torque/hip_n_m", "3 times the motor's limit of 12 N m", "N mm or counts"],
    ),
    "torque of one motor": (_set("motor_torque/knee_n_m", -61.0, 9), ["knee", "20 N m", "{9}"]),
    "kN": (_scale("foot_force", 1e-3), ["foot_force", "0.025", "looks like kN"]),
    "plates off": (_scale("foot_force", 0.0), ["foot_force", "plates that were off"]),
    "mN": (_scale("foot_force", 1e3), ["foot_force", "looks like mN"]),
    "force on the plate": (_scale("foot_force", -1.0), ["foot_force", "-25 N", "signs"]),
    "norm": (_set("base_quaternion/w", 0.9, slice(9, 11)), ["base_quaternion", "{9}", "unit"]),
    "Euler angles": (_scale("base_quaternion", 0.0), ["base_quaternion", "norm 0"]),
    "x y z w": (_xyzw, ["base_quaternion", "as x y z w", "w x y z"]),
    "overflow": (_set("base_quaternion/y", 1e200, 9), ["base_quaternion", "{9}"]),
    "overflow of time": (_set("time_s", 1e308, 59), ["time_s", "jumps"]),
    "overflow of force": (_set("foot_force/left/x_n", 1e308), ["foot_force", "mean norm inf"]),
}


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
@pytest.mark.parametrize("fault", BAD_LOGS)
def test_a_bad_log_is_refused_with_its_place(tmp_path, fault, suffix):
    columns, meta = good_log()
    change, said = BAD_LOGS[fault]
    change(columns, meta)
    path = save(tmp_path, suffix, columns, meta)
    message = refusal(path, torque_limit=[12.0, 20.0])
    # In the CSV the header is the line after the metadata.
    place = f"line {len(meta) + 2 + 9}" if suffix == ".csv" else "sample 9"
    for text in said:
        if text == "line|sample":
            assert re.search(text, message)
        else:
            assert text.replace("{9}", place) in message


def _replaced(old: str, new: str):
    return lambda text: text.replace(old, new, 1)


def _at_line(number: int, change):
    def changed(text: str) -> str:
        lines = text.splitlines()
        lines[number - 1] = change(lines[number - 1])
        return "\n".join(lines)

    return changed


# The header is line 4, sample 0 line 5.
BAD_CSV = {
    "empty": (lambda text: "", "is empty"),
    "blank": (lambda text: "\n \n", "is empty"),
    "only metadata": (lambda text: "# onset_s: 1\n", "is empty"),
    "only a header": (lambda text: text[: text.index("3.0,")], "has a header but no samples"),
    "word": (
        _at_line(9, _replaced("-0.8", "n/a")),
        "line 9: 'joint_position/knee_rad': 'n/a' is no number",
    ),
    "empty cell": (
        _at_line(9, _replaced("-0.8", "")),
        "line 9: 'joint_position/knee_rad': the cell is empty",
    ),
    "decimal comma": (_at_line(9, _replaced("-0.8", "-0,8")), "line 9: 28 cells, the header has"),
    "cut short": (lambda text: text[:-30], "line 64: .. cells, the header has 27"),
    "NULs of a power cut": (lambda text: text + "\0" * 80, "line 65: 1 cells, the header has 27"),
    "semicolons": (lambda text: text.replace(",", ";"), "not separated by commas"),
    "tabs": (lambda text: text.replace(",", "\t"), "not separated by commas"),
    "column twice": (_replaced("knee_rad,", "hip_rad,"), "'joint_position/hip_rad' is there twice"),
    "comma too many": (_at_line(4, lambda line: line + ","), "column 28 has no name"),
    "no header": (_at_line(4, lambda line: "#"), "line of column names is missing"),
    "control characters": (
        _replaced("command/pitch_rad", '"command/pi\ntch"'),
        r"unknown column 'command/pi\\ntch'",
    ),
    "long name": (_replaced("command/pitch_rad", "x" * 999), "'x{57}...'"),
    "metadata twice": (
        _replaced("# format: 1", "# onset_s: 2"),
        "line 2: key 'onset_s' is there t",
    ),
    "metadata with an equals sign": (_replaced("onset_s:", "onset_s ="), "line 2: '# onset_s = 3"),
    "metadata with a unit": (_replaced("onset_s: 3.0", "onset_s: 3.0 s"), "is not '# key: number'"),
    "a remark": (_replaced("# format: 1", "# third try"), "begin a remark with '##'"),
    "metadata below": (_at_line(9, lambda line: "# onset_s: 3"), "line 9: 1 cells"),
    "open quote": (_at_line(9, lambda line: '"' + line + "x" * 200_000), "line .*: no CSV"),
}


@pytest.mark.parametrize("fault", BAD_CSV)
def test_a_bad_csv_is_refused_with_its_line(tmp_path, fault):
    change, said = BAD_CSV[fault]
    path = tmp_path / "trial.csv"
    path.write_text(change(csv_text(*good_log())))
    assert re.search(said, refusal(path))


def test_a_file_that_is_no_log(tmp_path):
    assert "no such log" in refusal(tmp_path / "none.csv")
    assert "no such log" in refusal(tmp_path / "none.npz")
    (tmp_path / "folder.csv").mkdir()
    assert "cannot be read" in refusal(tmp_path / "folder.csv")
    (tmp_path / "trial.xlsx").touch()
    assert ".csv, .npz or .parquet" in refusal(tmp_path / "trial.xlsx")
    (tmp_path / "image.csv").write_bytes(b"\x89PNG\r\n")
    assert "UTF-8" in refusal(tmp_path / "image.csv")


def test_a_bad_npz_is_refused(tmp_path):
    columns, meta = good_log()
    path = save(tmp_path, ".npz", columns, meta)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert "no npz file" in refusal(path)
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    assert "no npz file" in refusal(path)
    bad = {
        "(60, 1), expected (T,)": columns | {HIP: columns[HIP][:, None]},
        "59 values, time_s has 60": columns | {HIP: columns[HIP][1:]},
        "not numbers": columns | {HIP: columns[HIP].astype(str)},
        "holds complex128": columns | {HIP: columns[HIP] + 0j},
        "no npz file": columns | {HIP: columns[HIP].astype(object)},
        "expected a scalar": columns | {"meta/amplitude_rad": np.zeros(2)},
        "is empty": {name: column[:0] for name, column in columns.items()},
    }
    for said, content in bad.items():
        assert said in refusal(save(tmp_path, ".npz", content, meta)), said
    assert "is empty" in refusal(save(tmp_path, ".npz", {}, {}))
    # Whole numbers and single precision are numbers.
    content = {name: column.astype(np.float32) for name, column in columns.items()}
    content["base_position/x_m"] = np.arange(60)
    rec = read_log(save(tmp_path, ".npz", content, meta), JOINTS, FEET)
    assert rec.base_position[7, 0] == 7.0


def test_torque_limits_have_to_fit(tmp_path):
    with pytest.raises(ValueError, match="torque_limit"):
        read_log(save(tmp_path, ".csv", *good_log()), JOINTS, FEET, torque_limit=[12.0])


@pytest.mark.parametrize(
    "change",
    [
        _scale("base_angular_velocity", 30.0),  # disagrees with both orders of the quaternion
        _scale("base_angular_velocity", 0.0),
        _scale("base_quaternion", 1.04),
        _scale("base_quaternion", -1.0),
        _set("base_quaternion/w", lambda w: w * (-1.0) ** np.arange(w.size)),
        _set("base_linear_velocity/x_m_s", -9.0),
        _scale("joint_position", 7.0),
        _scale("time_s", 1.0001),
        _set("time_s", lambda t: t + 0.0079, slice(9, None)),  # four samples dropped
        _set("foot_force/left/z_n", -1.0),
        _scale("foot_force", 0.1),
        _set("base_position/z_m", 12.0, slice(3, 6)),
        _meta(onset_s=-7.0),
        _meta(onset_s=3.1),
        _meta(fell=1),
        _meta(format=1.0),
        _rename("command/pitch_rad", "command/größe, total"),
    ],
)
def test_what_may_be_passes(tmp_path, change):
    columns, meta = good_log()
    change(columns, meta)
    read_log(save(tmp_path, ".npz", columns, meta), JOINTS, FEET, torque_limit=[1.0, 1.4])


def test_a_single_sample_is_a_log(tmp_path):
    columns, meta = good_log(n=1)
    rec = read_log(save(tmp_path, ".csv", columns, meta), JOINTS, FEET)
    assert rec.time.tolist() == [0.0]


# --- any bytes -----------------------------------------------------------------------------

_PIECES = (
    b",", b"\n", b"\r", b'"', b"#", b":", b"\0", b"-", b"e", b"9", b"nan", b"1e308", b"-1e308",
    b"1e400", b"# onset_s: 1e308\n", b"\xff", b"\xef\xbb\xbf", b"/", b" ", b"5e-324",
    "\u2028".encode(),
)  # fmt: skip
_EDITS = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),
        st.integers(0, 40),
        st.one_of(st.sampled_from(_PIECES), st.binary(max_size=4), st.just(b"")),
    ),
    min_size=1,
    max_size=4,
)


def _mutated(content: bytes, edits) -> bytes:
    for where, length, piece in edits:
        start = int(where * len(content))
        content = content[:start] + piece + content[start + length :]
    return content


def _read_or_refuse(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trial{suffix}"
        path.write_bytes(content)
        message = ""
        try:
            rec = read_log(path, JOINTS, FEET, torque_limit=[12.0, 20.0])
        except UserError as error:
            message = str(error)
        else:
            assert np.isfinite(rec.joint_position).all()
            assert np.isfinite(rec.time).all()
        assert message.isprintable()  # so it is one line, too


@given(edits=_EDITS, n=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_any_csv_is_read_or_refused(edits, n):
    _read_or_refuse(_mutated(csv_text(*good_log(n=n)).encode(), edits), ".csv")


@given(edits=_EDITS)
@settings(max_examples=50, deadline=None)
def test_any_npz_is_read_or_refused(edits):
    with tempfile.TemporaryDirectory() as folder:
        content = write_log(pitching(0.003 * np.arange(4)), Path(folder) / "a.npz").read_bytes()
    _read_or_refuse(_mutated(content, edits), ".npz")


# --- onset --------------------------------------------------------------------------------


def test_a_log_meets_the_simulation_at_the_onset(tmp_path):
    """At 1 kHz from 11.9 s on, onset at 12.34 s: loads 3 and 4 N apart, and nothing else."""
    simulated = pitching(0.003 * np.arange(600))
    slope = 5.0  # N/s, which linear interpolation meets exactly
    vertical = np.zeros((600, 2, 3))
    vertical[:, :, 2] = [20.0, 30.0] + slope * simulated.time[:, None]
    simulated = replace(simulated, foot_force=vertical)

    clock = 11.9 + 0.001 * np.arange(2300)
    t = clock - 12.34
    columns, meta = good_log(n=2300)
    pitch = 0.08 * np.sin(OMEGA * t - 0.3)
    columns |= {
        "time_s": clock,
        "base_quaternion/w": np.cos(pitch / 2),
        "base_quaternion/y": np.sin(pitch / 2),
        "base_angular_velocity/y_rad_s": 0.08 * OMEGA * np.cos(OMEGA * t - 0.3),
        "command/pitch_rad": 0.1 * np.sin(OMEGA * t),
        "command/pitch_rate_rad_s": 0.1 * OMEGA * np.cos(OMEGA * t),
        "joint_position/hip_rad": np.sin(3.0 * t),
        "foot_force/left/x_n": 0.0 * t,
        "foot_force/right/x_n": 0.0 * t,
        "foot_force/left/z_n": 23.0 + slope * t,
        "foot_force/right/z_n": 26.0 + slope * t,
    }
    meta |= {"onset_s": 12.34}
    measured = read_log(save(tmp_path, ".csv", columns, meta), JOINTS, FEET)

    assert measured.time[0] == pytest.approx(-0.44)
    np.testing.assert_allclose(metrics.grf_norm_rmse(simulated, measured), [3.0, 4.0], rtol=1e-9)
    time = common_time(simulated, measured)
    np.testing.assert_array_equal(time, simulated.time)  # the log covers all of it
    ours, theirs = resample(simulated, time), resample(measured, time)
    gap = ours.joint_position[:, 0] - theirs.joint_position[:, 0]
    np.testing.assert_allclose(gap, 0.0, atol=3.0**2 * 0.001**2 / 8)  # w^2 h^2 / 8
    np.testing.assert_allclose(ours.pitch, theirs.pitch, atol=0.08 * OMEGA**2 * 0.001**2 / 8)
    assert metrics.pitch_metrics([measured.slice_time(0.0)], 0.2)[
        "pitch_phase_lag_rad"
    ] == pytest.approx(0.3, abs=1e-9)


# --- other times --------------------------------------------------------------------------


def test_resampling_a_sine_errs_as_linear_interpolation_does():
    """At most w^2 h^2 / 8 of the amplitude, and nearly that halfway at the peak."""
    rec = pitching(0.003 * np.arange(600))
    time = 0.0015 + 0.003 * np.arange(599)
    again = resample(rec, time)
    np.testing.assert_array_equal(again.time, time)
    bound = 0.1 * OMEGA**2 * 0.003**2 / 8
    error = np.abs(again.command["pitch_rad"] - 0.1 * np.sin(OMEGA * time))
    assert 0.99 * bound < error.max() <= bound
    np.testing.assert_allclose(again.pitch, 0.08 * np.sin(OMEGA * time - 0.3), atol=bound)
    np.testing.assert_allclose(again.base_position[:, 0], 0.1 * time, atol=1e-15)
    np.testing.assert_allclose(again.foot_force, (rec.foot_force[1:] + rec.foot_force[:-1]) / 2)
    np.testing.assert_allclose(again.qpos[:, 7:], again.joint_position)
    np.testing.assert_array_equal(again.qpos[:, 3:7], again.base_quaternion)
    assert again.meta == rec.meta


def test_a_steady_turn_is_resampled_exactly_whatever_the_signs():
    """Half a radian between samples about a slanted axis, every other quaternion negated."""
    axis = np.array([2.0, -1.0, 2.0]) / 3.0

    def turned(time):
        half = 50.0 * time[:, None] / 2
        return np.concatenate([np.cos(half), axis * np.sin(half)], axis=1)

    stamps = 0.01 * np.arange(40)
    sign = (-1.0) ** np.arange(40)[:, None]
    rec = pitching(stamps, base_quaternion=sign * turned(stamps))
    time = np.sort(np.random.default_rng(0).uniform(0.0, 0.39, 200))
    got = resample(rec, time).base_quaternion
    same = np.abs(np.sum(got * turned(time), axis=1))
    np.testing.assert_allclose(same, 1.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=1e-12)


def test_resampling_at_own_stamps_changes_nothing():
    rec = pitching(0.7 + 0.003 * np.arange(50) / 1.0000001, fell=True)
    assert_same(resample(rec, rec.time), rec)
    cut = resample(rec, rec.time[7:20])
    np.testing.assert_array_equal(cut.foot_force, rec.foot_force[7:20])
    single = pitching([0.5])
    assert_same(resample(single, [0.5]), single)


def test_nan_stays_nan_and_stays_where_it_is():
    rec = pitching(0.01 * np.arange(5))
    force = np.array(rec.foot_force)
    force[:, 1] = np.nan
    torque = np.array(rec.motor_torque)
    torque[3, 0] = np.nan
    rec = replace(
        rec,
        foot_force=force,
        motor_torque=torque,
        base_quaternion=np.full((5, 4), np.nan),
        qpos=np.empty((5, 0)),
    )
    again = resample(rec, 0.005 * np.arange(9))
    assert np.isnan(again.foot_force[:, 1]).all()
    assert np.isfinite(again.foot_force[:, 0]).all()
    assert np.isnan(again.base_quaternion).all()
    assert np.flatnonzero(np.isnan(again.motor_torque[:, 0])).tolist() == [5, 6, 7]


def test_times_outside_are_refused_but_for_rounding():
    rec = pitching(0.003 * np.arange(10))
    for time in ([-0.001, 0.0], [0.02, 0.028], [0.01, np.nan], [], [0.01, 0.005], [[0.0, 0.01]]):
        with pytest.raises(ValueError, match=r"time"):
            resample(rec, time)
    again = resample(rec, [-1e-9, 0.027 + 1e-9])
    np.testing.assert_array_equal(again.foot_force, rec.foot_force[[0, 9]])


def test_common_time_is_the_overlap_at_simulated_stamps():
    simulated = pitching(0.003 * np.arange(100))
    log_time = 0.1 + 0.001 * np.arange(100)
    measured = pitching(log_time)
    time = common_time(simulated, measured)
    assert set(time) <= set(simulated.time)
    assert time[0] == pytest.approx(0.102)
    assert time[-1] == pytest.approx(0.198)
    assert resample(measured, time).time.size == resample(simulated, time).time.size == 33
    # Stamps that agree but for rounding are within both.
    rounded = pitching(np.cumsum(np.full(100, 0.003)) - 0.003)
    resample(rounded, common_time(simulated, rounded))
    assert common_time(simulated, rounded).size == 100
    with pytest.raises(ValueError, match="share no time"):
        common_time(simulated, pitching(9.0 + log_time))

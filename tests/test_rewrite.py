"""Identified numbers written into a description: right ones, and nothing else changed."""

import dataclasses
import difflib
import os

import pytest
import yaml

from s3n_mjx.config_files import dump_yaml
from s3n_mjx.errors import UserError
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.description import Provenance, load_description, numbers
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.rewrite import Identified, motor_changes, rewrite
from s3n_mjx.training.checkpoint import save_robot

SHA = "0123456789abcdef" * 4
LINKAGE = "linkages.parallelogram"


def found(value: float, half: float = 1e-3) -> Identified:
    """A number as an identification gives it; interval of ``half`` of it to both sides."""
    half *= abs(value)
    return Identified(
        value=value,
        interval=(value - half, value + half),
        date="2026-01-31",
        sources=({"file": "logs/spin one.csv", "sha256": SHA},),
        method="least squares: harmonics, # of periods 12",
    )


@pytest.fixture
def own(tmp_path):
    """A robot of one's own: files as bundled, but not generated."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("serial.xml", "closed_chain.xml"):
        (folder / name).write_bytes((bundled_robot().parent / name).read_bytes())
    path = folder / "robot.yaml"
    path.write_text(bundled_robot().read_text().split("\n", 1)[1])
    return path


def changed(old: str, new: str) -> tuple[list[str], list[str]]:
    """Lines of ``old`` that are gone and of ``new`` that came."""
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    return [x[2:] for x in lines if x[0] == "-"], [x[2:] for x in lines if x[0] == "+"]


def one_line(error) -> str:
    line = str(error.value)
    assert "\n" not in line
    return line


# ------------------------------------------------------------------------------ what is written


def test_only_the_numbers_change(tmp_path):
    """The bundled file, copied: all but the lines named here is as before, to the byte."""
    changes = {
        "motors.drive.rotor_inertia": found(0.000212345678),
        "torque_delay_ms": found(3.25),
        f"{LINKAGE}.inertia.m11": found(0.048),
        f"{LINKAGE}.inertia.m12": found(-0.00542),
        f"{LINKAGE}.angle_offset": found(0.0123),
        f"{LINKAGE}.jacobian.1.0": found(0.99),
        f"{LINKAGE}.omitted_moment.1": found(0.0125),
    }
    target = rewrite(bundled_robot(), changes, tmp_path / "new" / "robot.yaml")
    assets = os.path.relpath(bundled_robot().parent, target.parent)
    gone, came = changed(bundled_robot().read_text(), target.read_text())
    came, block = came[:9], came[9:]
    assert len(gone) == 9
    assert came == [
        f"# Made from {assets}/robot.yaml; its identified numbers are listed under `identified`.",
        f"model: {assets}/serial.xml # MJCF of the serial model, relative to this file",
        f"closed_chain: {assets}/closed_chain.xml # the same robot with its linkages; optional",
        "torque_delay_ms: 3.25             # command to torque",
        "    rotor_inertia: 0.0002123457",
        "    jacobian: [[1.0, 0.0], [0.99, 1.0]]",
        "    inertia: {m11: 0.048, m12: -0.00542, m22: 0.02368}",
        "    angle_offset: 0.0123          # rad, added to the distal joint's angle to give alpha",
        "    omitted_moment: [0.049, 0.0125]",
    ]
    assert block[:10] == [
        "",
        "# Numbers of this file that were identified: value, 95 % interval, origin.",
        "identified:",
        "  motors.drive.rotor_inertia:",
        "    value: 0.0002123457",
        "    interval: [0.0002121333, 0.000212558]",
        "    date: '2026-01-31'",
        "    sources:",
        f"      - {{file: logs/spin one.csv, sha256: {SHA}}}",
        "    method: 'least squares: harmonics, # of periods 12'",
    ]
    assert target.read_text().splitlines()[-len(block) :] == block
    robot = load_robot(target)
    assert robot.motor_inertia[0] == 81 * 0.0002123457
    assert set(robot.description.identified) == set(changes)
    before = numbers(load_description(bundled_robot()))
    after = numbers(robot.description)
    assert after == before | {k: v.value for k, v in robot.description.identified.items()}


def test_numbers_keep_seven_digits_and_pyyaml_reads_them(own):
    rewrite(own, {"motors.drive.rotor_inertia": found(2.123456789e-5)}, own, overwrite=True)
    assert "rotor_inertia: 2.123457e-05\n" in own.read_text()
    description = load_description(own)
    assert description.motors["drive"].rotor_inertia == 2.123457e-05
    assert description.identified["motors.drive.rotor_inertia"].value == 2.123457e-05


def test_through_the_gear(own):
    """Identified at the output; the file's numbers are before the gear, 9^2 = 81 less."""
    changes = motor_changes(
        load_description(own), "drive", found(0.0162, 0.01), reflected_damping=found(0.081, 0.5)
    )
    rewrite(own, changes, own, overwrite=True)
    description = load_description(own)
    assert description.motors["drive"].reflected_damping == pytest.approx(0.081)
    inertia = description.identified["motors.drive.rotor_inertia"]
    damping = description.identified["motors.drive.rotor_damping"]
    assert inertia.value == 0.0002
    assert inertia.interval == (0.000198, 0.000202)
    assert damping.interval == (0.0005, 0.0015)
    assert motor_changes(description, "drive") == {}
    with pytest.raises(UserError, match=r"no motor type named 'drives'; did you mean 'drive'\?"):
        motor_changes(description, "drives")


def test_again(own):
    """A second identification replaces its own entries and leaves the others with comments."""
    rewrite(
        own,
        {"torque_delay_ms": found(3.1), "motors.drive.rotor_inertia": found(2.1e-4)},
        own,
        overwrite=True,
    )
    own.write_text(own.read_text().replace("  torque_delay_ms:\n", "  torque_delay_ms:  # scope\n"))
    before = own.read_text()
    changes = {"motors.drive.rotor_inertia": found(2.2e-4), f"{LINKAGE}.inertia.m22": found(0.024)}
    rewrite(own, changes, own, overwrite=True)
    gone, came = changed(before, own.read_text())
    assert len(gone) == 4  # numbers of motor and linkage, value and interval of the entry
    assert len(came) == 4 + 7  # and the linkage's entry
    assert "  torque_delay_ms:  # scope\n" in own.read_text()
    assert own.read_text().count("\nidentified:") == 1
    identified = load_description(own).identified
    assert identified["torque_delay_ms"].value == 3.1
    assert identified["motors.drive.rotor_inertia"].value == 2.2e-4


LAYOUT = """\
---
format: 1
name: "mine"      # quoted
model: serial.xml
trunk: trunk
floor: floor
home_keyframe: home
torque_delay_ms:   3
motors:
    drive: { rotor_inertia: 2.0e-4,  rotor_damping: 0.0012, gear_ratio: 9, torque_limit: 30.0,
             kp: 50.0, kd: 1.5 }   # °

linkages:
    parallelogram:
        jacobian:
        - [ 1, 0 ]
        - [ 1, 1 ]
        # no inertia yet

# Legs, as on the drawing.
legs:
- name: FL
  foot: FL_foot
  joints: [
    {joint: FL_abduction, actuator: FL_abduction, motor: drive},
    {joint: FL_hip, actuator: FL_hip, motor: drive},
    {joint: FL_knee, actuator: FL_knee, motor: drive},
  ]
  pair: {proximal: FL_hip, distal: FL_knee, linkage: parallelogram}
# the end"""

INERTIA = {f"{LINKAGE}.inertia.{m}": v for m, v in (("m11", 0.05), ("m12", 0.005), ("m22", 0.02))}
MOMENT = {f"{LINKAGE}.omitted_moment.{i}": v for i, v in enumerate((0.05, 0.012))}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_other_layouts(tmp_path, newline):
    """Indentation, lists and spacing of one's own; numbers that the file does not have yet."""
    path = tmp_path / "robot.yaml"
    path.write_bytes(LAYOUT.replace("\n", newline).encode())
    values = INERTIA | MOMENT | {"motors.drive.rotor_damping": 0.00131, "torque_delay_ms": 2.5}
    values |= {f"{LINKAGE}.angle_offset": 0.1, f"{LINKAGE}.jacobian.1.0": 0.98}
    rewrite(path, {k: found(v) for k, v in values.items()}, path, overwrite=True)
    written = path.read_bytes().decode()
    assert written.count("\n") == written.count(newline)
    for comment in (
        "# quoted",
        "# °",
        "# no inertia yet",
        "# Legs, as on the drawing.",
        "# the end",
    ):
        assert comment in written
    assert 'name: "mine"' in written
    assert written.startswith("---")
    assert "        inertia: {m11: 0.05, m12: 0.005, m22: 0.02}" in written
    assert "        omitted_moment: [0.05, 0.012]" in written
    now = numbers(load_description(path))
    assert {k: now[k] for k in values} == values


@pytest.mark.parametrize("nothing", ["null", "~", "", "  # not known"])
def test_null_gives_way(own, nothing):
    text = own.read_text()
    line = next(x for x in text.splitlines() if x.startswith("    inertia:"))
    own.write_text(text.replace(line, f"    inertia: {nothing}".rstrip()))
    rewrite(own, {k: found(v) for k, v in INERTIA.items()}, own, overwrite=True)
    assert "    inertia: {m11: 0.05, m12: 0.005, m22: 0.02}" in own.read_text()
    assert load_description(own).linkages["parallelogram"].inertia is not None


@pytest.mark.parametrize("flow", [False, True])
def test_machine_made_files(own, flow):
    """As `dump_yaml` writes them, or JSON: nulls, an empty `identified`, all in one line."""
    plain = yaml.safe_load(dump_yaml(load_description(own)))
    plain["linkages"]["parallelogram"]["omitted_moment"] = None
    own.write_text(yaml.safe_dump(plain, default_flow_style=flow or None, sort_keys=False))
    for changes in (MOMENT, {"torque_delay_ms": 2.0}):
        rewrite(own, {k: found(v) for k, v in changes.items()}, own, overwrite=True)
    description = load_description(own)
    assert set(description.identified) == {*MOMENT, "torque_delay_ms"}
    assert description.linkages["parallelogram"].omitted_moment == (0.05, 0.012)


def test_in_the_same_folder_paths_stay(own):
    own.write_text(f"# Generated by my_export.py, do not edit.\n{own.read_text()}")
    target = rewrite(own, {"torque_delay_ms": found(2.0)}, own.parent / "identified.yaml")
    first, *rest = target.read_text().splitlines()
    assert first.startswith("# Made from robot.yaml;")
    assert rest[2] == own.read_text().splitlines()[3]  # model
    again = rewrite(target, {"torque_delay_ms": found(2.1)}, own.parent / "more" / "robot.yaml")
    assert again.read_text().startswith("# Made from ../identified.yaml; ")
    load_robot(again)


def test_folder_for_file(own, tmp_path):
    (tmp_path / "other").mkdir()
    target = rewrite(own.parent, {"torque_delay_ms": found(2.0)}, tmp_path / "other")
    assert target == tmp_path / "other" / "robot.yaml"
    assert "model: ../own/serial.xml " in target.read_text()
    assert "closed_chain: ../own/closed_chain.xml " in target.read_text()
    load_robot(target)


# ------------------------------------------------------------------------------ refusals


def test_nothing_is_overwritten_unasked(own, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("precious\n")
    before = own.read_bytes()
    for target in (own, own.parent / ".." / "own" / "robot.yaml", other):
        with pytest.raises(UserError, match=r"exists; give --write to replace it") as caught:
            rewrite(own, {"torque_delay_ms": found(2.0)}, target)
        one_line(caught)
    assert own.read_bytes() == before
    assert other.read_text() == "precious\n"
    rewrite(own, {"torque_delay_ms": found(2.0)}, other, overwrite=True)
    assert load_description(other).torque_delay_ms == 2.0


def test_generated_file_is_not_changed_in_place(own):
    before = bundled_robot().read_bytes()
    for source in (bundled_robot(), own):
        with pytest.raises(UserError, match=r"generated file.*give another target") as caught:
            rewrite(source, {"torque_delay_ms": found(2.0)}, bundled_robot(), overwrite=True)
        one_line(caught)
    assert bundled_robot().read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"motors.drive.rotor_inertias": 1e-4}, "did you mean 'motors.drive.rotor_inertia'?"),
        ({"motors.servo.rotor_damping": 1e-4}, "did you mean 'motors.drive.rotor_damping'?"),
        ({f"{LINKAGE}.omitted_moment.2": 0.1}, f"did you mean '{LINKAGE}.omitted_moment."),
        ({f"{LINKAGE}.inertia": 0.1}, "no such number to change"),
        ({"format": 1.0}, "format: no such number to change"),
        ({f"{LINKAGE}.inertia.m12": 0.5}, "(not written): linkages.parallelogram.inertia: m12^2"),
        ({"torque_delay_ms": -1.0}, "(not written): torque_delay_ms: "),
    ],
)
def test_bad_changes_are_one_line(own, tmp_path, changes, says):
    target = tmp_path / "new" / "robot.yaml"
    with pytest.raises(UserError) as caught:
        rewrite(own, {k: found(v) for k, v in changes.items()}, target)
    assert says in one_line(caught)
    assert str(own) in str(caught.value) or str(target) in str(caught.value)
    assert not target.parent.exists()


def test_half_of_a_missing_value_is_refused(tmp_path):
    path = tmp_path / "robot.yaml"
    path.write_text(LAYOUT)
    for value, says in [
        ({f"{LINKAGE}.inertia.m11": 0.05}, "inertia.m12: missing; add it"),
        ({f"{LINKAGE}.omitted_moment.1": 0.05}, "omitted_moment: is missing; give both"),
    ]:
        with pytest.raises(UserError) as caught:
            rewrite(path, {k: found(v) for k, v in value.items()}, tmp_path / "new.yaml")
        assert says in one_line(caught)
    assert path.read_text() == LAYOUT


def test_shared_numbers_are_refused(own):
    """Changing one motor through an anchor would change the other."""
    text = own.read_text()
    motor = text[text.index("  drive:\n") : text.index("\nlinkages:")]
    shared = motor.replace("drive:\n", "drive: &drive\n") + "  other: *drive\n"
    own.write_text(text.replace(motor, shared))
    with pytest.raises(UserError, match=r"motors\.other\.rotor_inertia: shares numbers") as caught:
        rewrite(own, {"motors.drive.rotor_inertia": found(1e-4)}, own, overwrite=True)
    one_line(caught)
    # A merge is another matter: the motor gets a key of its own.
    shared = own.read_text()
    for merge in ("other:\n    <<: *drive\n", "other: {<<: *drive}\n"):
        own.write_text(shared.replace("other: *drive\n", merge))
        rewrite(own, {"motors.other.rotor_inertia": found(1e-4)}, own, overwrite=True)
        motors = load_description(own).motors
        assert (motors["drive"].rotor_inertia, motors["other"].rotor_inertia) == (2e-4, 1e-4)


def test_target_that_cannot_be_written(own, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written") as caught:
        rewrite(own, {"torque_delay_ms": found(2.0)}, tmp_path / "file" / "robot.yaml")
    one_line(caught)


# ------------------------------------------------------------------------------ `identified`


@pytest.fixture
def identified(description) -> dict:
    """A description with one entry, as YAML reads it."""
    entry = {
        "value": 0.0002,
        "interval": [0.00019, 0.00021],
        "date": "2026-01-31",
        "sources": [{"file": "spin.csv", "sha256": SHA}],
        "method": "least squares",
    }
    return description | {"identified": {"motors.drive.rotor_inertia": entry}}


def test_stale_entry_is_refused(identified, write_robot):
    path = write_robot(identified)
    load_robot(path)
    identified["motors"]["drive"]["rotor_inertia"] *= 1 + 5e-7
    load_robot(write_robot(identified))
    identified["motors"]["drive"]["rotor_inertia"] = 0.0003
    write_robot(identified)
    for use in (
        lambda: load_robot(path),
        lambda: rewrite(path, {"torque_delay_ms": found(2.0)}, path.parent / "new.yaml"),
    ):
        with pytest.raises(UserError) as caught:
            use()
        assert one_line(caught) == (
            f"{path}: identified.motors.drive.rotor_inertia: motors.drive.rotor_inertia is 0.0003,"
            " identified was 0.0002; it was edited after identification; remove the entry or"
            " restore the value"
        )


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("interval", [0.00021, 0.00019], "interval [0.00021, 0.00019] is not [low, high]"),
        ("interval", [0.0154, 0.0170], "outside its interval [0.0154, 0.017]; give both in"),
        ("interval", [0.0001], "interval"),
        ("date", "31.1.2026", "'31.1.2026' is not an ISO date such as 2026-01-31"),
        ("date", "20260131", "is not an ISO date"),
        ("sources", [], "sources"),
        ("sources", [{"file": "a.csv", "sha256": "abc"}], "sources.0.sha256"),
        ("sources", [{"file": "a.csv"}], "sources.0.sha256: missing"),
        ("method", "two\nlines", "method"),
        ("method", "", "method"),
        ("unit", "kg m^2", "unit: unknown key"),
        ("value", float("nan"), "value"),
    ],
)
def test_bad_entry_is_one_line(identified, write_robot, key, value, says):
    identified["identified"]["motors.drive.rotor_inertia"][key] = value
    with pytest.raises(UserError) as caught:
        load_description(write_robot(identified))
    assert "identified.motors.drive.rotor_inertia" in one_line(caught)
    assert says in str(caught.value)


def test_entry_of_no_number(identified, write_robot):
    entries = identified["identified"]
    entries["motors.drive.rotor_inertai"] = entries.pop("motors.drive.rotor_inertia")
    with pytest.raises(UserError, match=r"did you mean 'motors.drive.rotor_inertia'") as caught:
        load_description(write_robot(identified))
    one_line(caught)


def test_date_without_quotes(identified, write_robot):
    path = write_robot(identified)
    path.write_text(path.read_text().replace("'2026-01-31'", "2026-01-31"))
    assert load_description(path).identified["motors.drive.rotor_inertia"].date == "2026-01-31"


def test_checkpoints_keep_it(robot, own, tmp_path):
    rewrite(own, {"torque_delay_ms": found(2.5)}, own, overwrite=True)
    identified = load_robot(own)
    save_robot(identified, tmp_path / "with")
    kept = load_robot(tmp_path / "with").description
    assert kept == dataclasses.replace(identified.description, model="model.xml")
    assert isinstance(kept.identified["torque_delay_ms"], Provenance)
    # Without it the file is as it was before there was such a key: older runs compare it.
    save_robot(robot, tmp_path / "without")
    assert "identified" not in (tmp_path / "without" / "robot.yaml").read_text()
    load_robot(tmp_path / "without")

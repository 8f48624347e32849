"""`robot check`: what would go wrong in a training is found before it, and said."""

import dataclasses

import numpy as np
import pytest
import yaml
from test_hazards import described, load, mjcf  # noqa: F401 - a fixture

from s3n_mjx.errors import UserError
from s3n_mjx.robot import commands
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.validation import readiness

# Feet long and wide enough to stand on without balancing.
SKIS = (
    '<geom name="{side}_foot" type="box" size="0.12 0.04 0.01" pos="0.02 0 -0.195" euler="0 0.3 0"'
    ' mass="0.1"/>'
)


@pytest.fixture
def stranger(tmp_path):
    """Path of a two-legged robot's description that a test may change."""

    def write(description: dict, **changes: str):
        (tmp_path / "robot.xml").write_text(mjcf(**({"foot": SKIS} | changes)))
        (tmp_path / "robot.yaml").write_text(yaml.safe_dump(description))
        return tmp_path / "robot.yaml"

    return write


def test_the_whole_command(stranger, capsys):
    """A robot that stands, joints of an arm welded; every check leaves a line."""
    commands.main(["check", str(stranger(described())), "--seconds", "0.5"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("stranger, s3n_act by qfrc_applied")
    marks = {line.split(":")[0].split(maxsplit=1)[1]: line.split()[0] for line in lines[1:-1]}
    assert marks == {
        "description": "ok",
        "motors": "ok",
        "stability": "note",
        "contacts": "note",
        "MJX against C MuJoCo": "ok",
        "stands in C MuJoCo": "ok",
        "stands in MJX": "ok",
        "random actions": "ok",
    }
    assert lines[-1].startswith("ready: ")
    assert "--robot" in lines[-1]


def test_a_failure_ends_in_one_line(stranger, monkeypatch, capsys):
    finding = readiness.Finding("motors", "too weak", False)
    monkeypatch.setattr(readiness, "checks", lambda *_: iter([finding]))
    with pytest.raises(UserError, match="not ready: motors; see above") as caught:
        commands.main(["check", str(stranger(described()))])
    assert "\n" not in str(caught.value)
    assert "FAILED  motors: too weak" in capsys.readouterr().out


def test_motors_too_weak_to_stand_or_without_gain(load):  # noqa: F811
    strong = readiness._load(load())
    assert strong.passed
    description = described()
    description["motors"]["drive"]["torque_limit"] = 0.5
    weak = readiness._load(load(description))
    assert weak.passed is False
    assert "hip's motor" in weak.text or "knee's motor" in weak.text
    description["motors"]["drive"] |= {"kp": 0.0, "torque_limit": 20.0}
    idle = readiness._load(load(description))
    assert idle.passed is False
    assert "kp is 0 at l_hip" in idle.text


def test_limits_beyond_the_file_s_are_told(load):  # noqa: F811
    """20 N m in the file; behind a gear of 3 the file allows 60."""
    assert list(readiness._limits(load())) == []
    description = described()
    description["motors"]["drive"]["torque_limit"] = 40.0
    [finding] = readiness._limits(load(description))
    assert finding.passed is None
    assert "l_hip 40 against 20" in finding.text
    geared = "".join(
        f'<motor name="{n}" joint="{n}" gear="3" forcerange="-20 20" forcelimited="true"/>'
        for n in ("l_hip", "l_knee", "r_hip", "r_knee")
    )
    np.testing.assert_allclose(readiness.file_limits(load(actuators=geared)), 60.0)
    assert list(readiness._limits(load(description, actuators=geared))) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tilt": 0.5}, "fallen over"),
        ({"sag": 0.2}, "sunk or risen"),
        ({"speed": 2.0}, "does not come to rest"),
        ({"speed": np.nan}, "no number"),
        ({"force": np.full(4, 20.0)}, "does something else touch the floor"),
        ({}, ""),
    ],
)
def test_what_counts_as_standing(robot, changes, says):
    weight = robot.mass * 9.81
    good = readiness._Stand(tilt=0.01, sag=0.003, speed=0.01, force=np.full(4, weight / 4))
    finding = readiness._stands("stands", robot, dataclasses.replace(good, **changes))
    assert finding.passed is (not changes)
    assert says in finding.text


def test_a_biped_that_falls_is_no_failure(load):  # noqa: F811
    fallen = readiness._Stand(tilt=1.5, sag=0.3, speed=0.1, force=np.zeros(2))
    finding = readiness._stands("stands", load(), fallen)
    assert finding.passed is None
    assert "a policy has to balance it" in finding.text


def test_a_closed_chain_that_contradicts_the_description(robot):
    assert readiness._closed_chain(robot, SimulationConfig()).passed
    wrong = dataclasses.replace(robot, actuator_map=np.eye(12))
    finding = readiness._closed_chain(wrong, SimulationConfig())
    assert finding.passed is False
    assert "contradicts `jacobian`" in finding.text


def test_stability_is_told_with_its_number(robot, load):  # noqa: F811
    config = SimulationConfig(variant="s3n_full")
    assert "rho = 0.6" in readiness._lag(normalize(robot, config)).text
    assert "adds nothing to kin_only" in readiness._lag(normalize(load(), config)).text

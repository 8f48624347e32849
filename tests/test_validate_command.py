"""`validate`: what it writes, what it refuses, and measured logs in the closed chain's place."""

import contextlib
import dataclasses
import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from s3n_mjx import validate
from s3n_mjx.cli import parse_arguments
from s3n_mjx.errors import UserError
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.robot.stand import on_stand
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.validation import comparison
from s3n_mjx.validation.comparison import Setup, closed_chain_reference
from s3n_mjx.validation.excitation import Chirp, Excited
from s3n_mjx.validation.leg import Response, sampled
from s3n_mjx.validation.measured import (
    LegLog,
    logged_reference,
    means,
    read_leg_logs,
    write_leg_logs,
)

SETTLE = "--settle-s 0.06"
CHIRP = f"--duration-s 0.6 --stop-hz 10 {SETTLE}"


@dataclasses.dataclass
class Run:
    """A validation against the closed chain that wrote its logs."""

    out: Path
    data: dict
    printed: str
    simulated: dict  # what came of each configuration, and the command

    def log(self, excited: str) -> Path:
        return self.out / "logs" / f"FL_{excited}.npz"


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("validate")
    out, data, printed = folder / "out", folder / "figures.json", io.StringIO()
    simulated = {}
    simulate = comparison.simulate

    def kept(stand, config, time, targets):
        responses = simulate(stand, config, time, targets)
        simulated[config] = time, targets, responses
        return responses

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(comparison, "simulate", kept)
        flags = f"{CHIRP} --timing staggered --no-explain --write-logs --out {out} --json {data}"
        validate.main(flags.split())
    return Run(out, json.loads(data.read_text()), printed.getvalue(), simulated)


@pytest.fixture
def canned(monkeypatch):
    """The simulator answers at once with its targets, but refuses what it refuses."""

    def simulate(stand, config, time, targets):
        normalize(stand, config)
        return [Response(time, t @ stand.actuator_map.T, 0 * t) for t in targets]

    monkeypatch.setattr(comparison, "simulate", simulate)


def changed(log: Path, folder: Path, change) -> Path:
    """A copy of a log with other columns or metadata."""
    with np.load(log) as file:
        content = {name: file[name] for name in file.files}
    change(content)
    path = folder / "trial.npz"
    np.savez(path, **content)
    return path


def refusal(flags: str, out: Path) -> str:
    with pytest.raises(UserError) as caught:
        validate.main([*shlex.split(flags), "--out", str(out)])
    assert "\n" not in str(caught.value)
    assert not out.exists()
    return str(caught.value)


def test_command_writes_tables_figures_and_report(done):
    assert "both motors excited: RMSE against the reference (closed chain, ideal)" in done.printed
    assert str(done.out) in done.printed
    labels = {(m["variant"], m["injection"]) for m in done.data["models"]}
    assert labels == {("kin_only", "qfrc_applied")} | {
        (v, i) for v in ("s3n_act", "s3n_full") for i in ("qfrc_applied", "mass_matrix")
    }
    full = done.data["models"][-1]
    assert full["both"]["position_change_percent"] < -80
    for name in ("report.html", "validate.json", "rmse.png", "error_over_frequency.png"):
        assert (done.out / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--link-gravity", "--link-gravity: needs --gravity"),
        ("--leg XX", "--leg: no leg 'XX' with a pair; known: FL, FR, RL, RR"),
        ("--amplitude-rad 2", "--amplitude-rad: 2 rad drives joint"),
        ("--robot nowhere.yaml", "nowhere.yaml"),
        ("--level perfect", "--level"),
        ("--against none.csv", "none.csv: no such log"),
        ("--against none.csv --level realistic", "--level: is of the closed chain; leave it out"),
        ("--against none.csv --seed 1", "--seed: is of the closed chain; leave it out"),
        ("--against none.csv --write-logs", "--write-logs: is of the closed chain"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(tmp_path, flags, says):
    assert says in refusal(flags, tmp_path / "out")


# --- measured logs ----------------------------------------------------------------------------


def test_against_its_own_logs_the_figures_are_those_of_the_closed_chain(
    done, tmp_path, monkeypatch, capsys
):
    """With the command from the logs' metadata: the simulator has to be asked for the same."""

    def replayed(stand, config, time, targets):
        known_time, known_targets, responses = done.simulated[config]
        np.testing.assert_array_equal(time, known_time)
        np.testing.assert_array_equal(targets, known_targets)
        return responses

    monkeypatch.setattr(comparison, "simulate", replayed)
    logs = [str(done.log(e)) for e in Excited]
    validate.main(
        f"{SETTLE} --timing staggered --no-explain --out {tmp_path} --against".split() + logs
    )
    data = json.loads((tmp_path / "validate.json").read_text())
    for ours, theirs in zip(data["models"], done.data["models"], strict=True):
        assert (ours["variant"], ours["injection"]) == (theirs["variant"], theirs["injection"])
        for excited in Excited:
            for key, value in theirs[excited].items():
                np.testing.assert_allclose(ours[excited][key], value, rtol=1e-9)
    name = "logs FL_hip.npz, FL_knee.npz, FL_both.npz"
    assert data["reference"] == name
    assert data["settings"]["chirp"] == done.data["settings"]["chirp"]
    assert not {"level", "seed"} & set(data["settings"])
    report = (tmp_path / "report.html").read_text()
    for text in (capsys.readouterr().out, report):
        assert name in text
        assert "closed chain" not in text


@pytest.mark.parametrize("timing", Timing)
@pytest.mark.parametrize("step_s", [0.003, 0.004])
def test_a_written_log_is_the_reference_whatever_the_step(robot, tmp_path, timing, step_s):
    """Noise, friction and weight included; with the step of the recording and with another."""
    stand, chirp = on_stand(robot), Chirp(stop_hz=10.0, duration_s=0.24, settle_s=0.06)
    pair = stand.pairs[3]
    motors = (pair.proximal, pair.distal)
    setup = Setup(stand, motors, chirp, SimulationConfig(), (Excited.KNEE,))
    closed = closed_chain_reference(stand, chirp, Level.REALISTIC, 1, gravity=True)
    (path,) = write_leg_logs(setup, closed, tmp_path)
    assert path.name == "RR_knee.npz"
    (log,) = read_leg_logs([path], robot, robot.pairs[3])
    assert (log.excited, log.gravity) == (Excited.KNEE, True)
    time = chirp.times(step_s)
    logged = logged_reference([log], chirp, stand, motors)(step_s, Excited.KNEE, 0.0)
    ours = sampled(logged, time, timing)
    full = closed(0.003, Excited.KNEE, 3e-3)
    steps = round(step_s / 1e-4)
    np.testing.assert_allclose(
        ours.position[:, motors], full.position[::steps][:, motors], atol=1e-12
    )
    assert np.isnan(ours.position[:, 0]).all()  # another leg's
    before = steps // 2 if timing is Timing.STAGGERED else 0
    k = steps * np.arange(1, len(time) - 1)
    expected = [full.torque[i - before : i - before + steps, motors].mean(axis=0) for i in k]
    np.testing.assert_allclose(ours.torque[1:-1, motors], expected, atol=1e-9)


def test_means_of_held_and_of_continuous_samples():
    edges = np.array([-1.0, 0.0, 0.5, 1.5, 4.0])
    time, values = np.array([0.0, 1.0, 3.0]), np.array([[2.0], [4.0], [0.0]])
    held = means(time, values, True, edges)[:, 0]
    np.testing.assert_allclose(held, [2, 2, 3, (1.5 * 4 + 0) / 2.5])
    line = means(time, values, False, edges)[:, 0]
    # 2 + 2 t, then 4 - 2 (t - 1), then 0
    np.testing.assert_allclose(line, [2, 2.5, (1.75 + 1.75) / 1, 1.5 * 1.5 / 2.5])


@pytest.mark.parametrize("timing", Timing)
def test_measured_torque_is_averaged_over_the_step(robot, timing):
    """Of a 1 kHz log of a 10 Hz sine whose stamps are not the simulator's."""
    stand, chirp, w, h = on_stand(robot), Chirp(duration_s=0.3, settle_s=0.0), 20 * np.pi, 0.003
    time = np.linspace(-0.01025, 0.38975, 401)
    home = np.tile(stand.home_joints[:2], (401, 1))
    torque = np.stack([np.sin(w * time), np.cos(w * time)], axis=1)
    log = LegLog(Path("x.csv"), time, home, torque, Excited.HIP, chirp, False, False, 0.0)
    stamps = chirp.times(h)
    response = logged_reference([log], chirp, stand, (0, 1))(h, Excited.HIP, 0.0)
    ours = sampled(response, stamps, timing).torque[1:, :2]
    begin = stamps[1:] - (h / 2 if timing is Timing.STAGGERED else 0)
    sine = np.sin(w * (begin + h)) - np.sin(w * begin)
    cosine = np.cos(w * (begin + h)) - np.cos(w * begin)
    # A straight line between samples loses w^2 / 12 rate^2; half a sample's shift would be 0.03.
    np.testing.assert_allclose(ours, np.stack([-cosine, sine], axis=1) / (w * h), atol=1e-3)


def test_a_log_of_one_leg_says_which_and_one_of_the_whole_robot_will_do(done, tmp_path, robot):
    def other_leg(content):
        for name in [n for n in content if "/FL_" in n]:
            content[name.replace("/FL_", "/RL_")] = content.pop(name)

    path = changed(done.log("both"), tmp_path, other_leg)
    said = refusal(f"--against {path}", tmp_path / "out")
    assert "has no joints of leg FL, but those of RL; give --leg RL" in said
    options = parse_arguments(validate.Validate, f"--against {path} --leg RL".split(), "")
    _, setup, reference = validate.prepared(options)
    assert setup.excitations == (Excited.BOTH,)
    assert setup.main is Excited.BOTH
    assert [setup.stand.joints[i] for i in setup.motors] == ["RL_hip", "RL_knee"]
    assert reference.name == "log trial.npz"

    def whole_robot(content):
        for name in robot.joints:
            for column in (f"joint_position/{name}_rad", f"motor_torque/{name}_n_m"):
                content.setdefault(column, 0.0 * content["time_s"])
        for axis in "xyz":
            content[f"foot_force/FL_foot/{axis}_n"] = 0.0 * content["time_s"] + 1.0

    (log,) = read_leg_logs([changed(done.log("hip"), tmp_path, whole_robot)], robot, robot.pairs[0])
    (alone,) = read_leg_logs([done.log("hip")], robot, robot.pairs[0])
    np.testing.assert_array_equal(log.position, alone.position)
    np.testing.assert_array_equal(log.torque, alone.torque)


def _without(*names):
    return lambda content: [content.pop(name) for name in names]


def _with(**meta):
    return lambda content: content.update({f"meta/{k}": float(v) for k, v in meta.items()})


def _scaled(name, factor):
    return lambda content: content.update({name: factor * content[name]})


def _thinned(content):
    content.update({n: c[::150] for n, c in content.items() if c.ndim})


TORQUES = ("motor_torque/FL_hip_n_m", "motor_torque/FL_knee_n_m")
HIP = "joint_position/FL_hip_rad"


@pytest.mark.parametrize(
    ("change", "flags", "says"),
    [
        (
            _without("meta/chirp_stop_hz", "meta/torque_held"),
            "",
            "metadata has no `chirp_stop_hz`, `torque_held`; add `# chirp_stop_hz: NUMBER` above"
            " the header for each",
        ),
        (_without(*TORQUES), "", f"column '{TORQUES[0]}' is missing"),
        (_without(HIP), "", f"column '{HIP}' is missing"),
        (_with(excited_hip=2), "", "excited_hip: is 2; write 1 for yes, 0 for no"),
        (_with(excited_hip=0, excited_knee=0), "", "are both 0"),
        (_with(chirp_amplitude_rad=-1), "", "amplitude_rad: Input should be greater than 0"),
        (_with(chirp_amplitude_rad=2), "", "2 rad drives joint"),
        (_with(position_loop_s=-1), "", "position_loop_s: is -1"),
        (_with(chirp_duration_s=25), "", "the sweep is from 0 to 25 s"),
        (_with(onset_s=-0.3), "", "covers 0.240 to 0.900 s after onset_s"),
        (_with(chirp_stop_hz=1200), "", "record at 12000 Hz or more"),
        (_thinned, "", "67 samples per second are too few for 10 Hz; record at 100 Hz"),
        (_scaled(HIP, -1), "", f"'{HIP}' is -0.785 rad"),
        (_scaled(TORQUES[0], 1e3), "", "convert it to N m"),
        (_with(), "--stop-hz 20", "--stop-hz: 20 contradicts"),
        (_with(), "--stop-hz 20", "where chirp_stop_hz is 10; leave the flag out"),
        (_with(), "--gravity", "--gravity: contradicts"),
        (_with(), "--link-gravity", "--link-gravity: needs --gravity"),
    ],
)
def test_a_log_that_is_no_leg_test_is_refused(done, tmp_path, change, flags, says):
    path = changed(done.log("both"), tmp_path, change)
    said = refusal(f"--against {path} {flags}", tmp_path / "out")
    assert says in said
    assert str(path) in said or "--" in said


def test_logs_of_different_tests_are_refused(done, tmp_path):
    out, hip = tmp_path / "out", done.log("hip")
    other = changed(done.log("both"), tmp_path, _with(chirp_start_hz=0.2))
    said = refusal(f"--against {hip} {other}", out)
    assert f"chirp_start_hz is 0.2, in {hip} it is 0.1" in said
    other = changed(done.log("both"), tmp_path, _with(gravity=1))
    assert "gravity is 1, in" in refusal(f"--against {hip} {other}", out)
    assert f"excites the same motors as {hip} (hip)" in refusal(f"--against {hip} {hip}", out)


@pytest.mark.usefixtures("canned")
def test_sources_that_would_change_the_log_are_left_out(done, tmp_path, capsys):
    def labels(change):
        path = changed(done.log("hip"), tmp_path, change)
        flags = f"--against {path} {SETTLE}".split()
        _, setup, reference = validate.prepared(parse_arguments(validate.Validate, flags, ""))
        case = comparison.all_cases((Timing.PAPER,))[-1]
        return [label for label, _ in comparison.explain(setup, case, reference)]

    assert labels(_with()) == ["as it is", "with velocity terms"]
    # Down to the period of the log's position loop, where that is known.
    assert labels(_with(position_loop_s=1e-3)) == [
        "as it is",
        "time step 1 ms",
        "with velocity terms",
        "all of the terms, time step 1 ms",
    ]
    assert "time step 0.3 ms" in labels(_without("meta/position_loop_s"))
    assert labels(_with(gravity=1))[-1] == "with velocity terms and link gravity"

    validate.main(f"--against {done.log('hip')} --timing paper --out {tmp_path} {SETTLE}".split())
    assert "s3n_full, mass_matrix, paper; hip motor excited" in capsys.readouterr().out
    report = (tmp_path / "report.html").read_text()
    assert "the log stays as it was recorded" in report
    assert "closed chain" not in report


# --- models that the simulator refuses --------------------------------------------------------


@pytest.mark.usefixtures("canned")
def test_a_refused_model_is_a_row_with_its_reason(done, tmp_path, description, write_robot, capsys):
    description["linkages"]["parallelogram"]["inertia"]["m12"] *= 5
    out = tmp_path / "out"
    validate.main(
        f"--robot {write_robot(description)} --against {done.log('both')} --out {out}"
        f" --timing paper {SETTLE}".split()
    )
    reason = "s3n_full by qfrc_applied is unstable"
    printed = capsys.readouterr().out
    (row,) = (line for line in printed.splitlines() if " refused " in line)
    assert row.split() == ["s3n_full", "qfrc_applied", "paper,", "refused", *6 * "-"]
    assert any(
        line.startswith("refused: s3n_full, qfrc_applied, paper: ") and reason in line
        for line in printed.splitlines()
    )
    data = json.loads((out / "validate.json").read_text())
    refused = [m for m in data["models"] if "refused" in m]
    assert [(m["variant"], m["injection"]) for m in refused] == [("s3n_full", "qfrc_applied")]
    assert reason in refused[0]["refused"]
    assert len(data["models"]) == 5  # and the rest went on
    assert "s3n_full, mass_matrix, paper changes the error" in (out / "report.html").read_text()
    assert reason in (out / "report.html").read_text()


@pytest.mark.usefixtures("canned")
def test_without_identified_linkage_the_best_is_s3n_act(
    done, tmp_path, description, write_robot, capsys
):
    del description["linkages"]["parallelogram"]["inertia"]
    out = tmp_path / "out"
    validate.main(
        f"--robot {write_robot(description)} --against {done.log('both')} --out {out}"
        f" --timing paper --no-explain {SETTLE}".split()
    )
    assert capsys.readouterr().out.count("needs the identified `inertia`") == 2
    assert "s3n_act, mass_matrix, paper changes the error" in (out / "report.html").read_text()


def test_kin_only_refused_ends_in_one_line(done, tmp_path, monkeypatch):
    def simulate(*_):
        raise UserError("robot.yaml: no")

    monkeypatch.setattr(comparison, "simulate", simulate)
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"^robot\.yaml: no$"):
        validate.main(f"--out {out} {CHIRP} --against {done.log('hip')}".split())
    assert list(out.iterdir()) == []

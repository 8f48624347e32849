"""Export: ONNX is the policy, the example controller is the reference, the file tells it all."""

import ast
import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import mujoco.viewer
import numpy as np
import onnx
import pytest

from s3n_mjx import export
from s3n_mjx.deployment import controller
from s3n_mjx.deployment.onnx_policy import actions_jax, actions_onnx
from s3n_mjx.envs.base import RobotEnv, TaskState
from s3n_mjx.errors import UserError
from s3n_mjx.eval import default_folder, nominal_env, policy_of
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.evaluation.rollout import _with
from s3n_mjx.reference.rollout import rollout_reference
from s3n_mjx.resources import assets_folder, bundled_robot
from s3n_mjx.robot.model import load_robot, load_spec
from s3n_mjx.simulation.control import SimulationState
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training.policy import Policy

CLOSED_CHAIN = bundled_robot().parent / "closed_chain.xml"
SERIAL = bundled_robot().parent / "serial.xml"

# The controller rounds other numbers to float32 than JAX does, about 1e-7 of an action; neither
# pitching in place nor the trot amplifies that while the feet's contacts are the same. Up to
# 1.3e-6 m or rad were measured, from 14 starts of 4 s each.
SAME = 4e-6


@dataclass(frozen=True, eq=False)
class Exported:
    """A shipped policy, and what its export left and said."""

    checkpoint: checkpoints.Checkpoint
    env: RobotEnv
    policy: Policy
    folder: Path
    said: str

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.load(self.folder / export.POLICY)

    @property
    def meta(self) -> dict:
        return {prop.key: json.loads(prop.value) for prop in self.model.metadata_props}

    def controller(self) -> controller.Controller:
        return controller.Controller(self.folder / export.POLICY)


def export_of(name: str, folder: Path) -> Exported:
    """The command on a shipped policy."""
    path = assets_folder() / "policies" / name
    with contextlib.redirect_stdout(io.StringIO()) as said:
        export.main(["--checkpoint", str(path), "--out", str(folder)])
    checkpoint = checkpoints.load(path)
    env = nominal_env(checkpoint)
    return Exported(checkpoint, env, policy_of(checkpoint, env), folder, said.getvalue())


@pytest.fixture(scope="module")
def pitch(tmp_path_factory) -> Exported:
    return export_of("pitch-s3n_full_beyond", tmp_path_factory.mktemp("export") / "pitch")


@pytest.fixture(scope="module")
def circle(tmp_path_factory) -> Exported:
    return export_of("circle-s3n_act", tmp_path_factory.mktemp("export") / "circle")


@pytest.fixture(params=["pitch", "circle"])
def exported(request) -> Exported:
    return request.getfixturevalue(request.param)


def recorded(env: RobotEnv, policy: Policy, episodes: int, steps: int) -> np.ndarray:
    """Observations (episodes * steps, n) of the policy in the simulator, any command."""
    ranges = np.array(list(env.command_ranges.values()), np.float32).reshape(-1, 2)

    def advance(state, _):
        action, _ = policy(state.obs, jax.random.PRNGKey(0))
        return env.step(state, action), state.obs

    @jax.jit
    @jax.vmap
    def run(key):
        state = env.reset(key)
        if len(ranges):
            low, high = ranges.T
            command = jax.random.uniform(key, low.shape, minval=low, maxval=high)
            state = _with(env, state, command=command)
        return jax.lax.scan(advance, state, length=steps)[1]

    seen = np.asarray(run(jax.random.split(jax.random.PRNGKey(5), episodes)))
    return seen.reshape(episodes * steps, -1)


def test_onnx_is_the_policy_on_recorded_observations(exported):
    seen = recorded(exported.env, exported.policy, 20, 500)
    assert seen.shape == (10_000, exported.env.observation_size)
    far = 10.0 * seen
    differences = [
        np.abs(actions_onnx(exported.model, x) - actions_jax(exported.policy, x)).max()
        for x in (seen, far)
    ]
    print(f"largest difference: {differences[0]:.1e}, ten times as far out {differences[1]:.1e}")
    assert differences[0] <= export.PARITY
    assert differences[1] <= 10 * export.PARITY
    # Batches of any size, and the environment's clip.
    one = actions_onnx(exported.model, seen[:1])
    np.testing.assert_allclose(one, actions_onnx(exported.model, seen[:7])[:1], atol=1e-6)
    assert np.abs(actions_onnx(exported.model, 1e3 * seen)).max() == 1.0


def started(env: RobotEnv, joints: np.ndarray, phase: float, command: np.ndarray) -> Recording:
    """A recording that begins at rest with these joints (nu,), as `rollout_reference` takes it."""
    robot, nu = env.robot, env.action_size
    return Recording(
        joint_names=robot.joints,
        foot_names=robot.feet,
        time=np.array([env.onset(phase)]),
        joint_position=joints[None],
        joint_velocity=np.zeros((1, nu)),
        motor_torque=np.zeros((1, nu)),
        base_position=robot.home_qpos[None, :3],
        base_quaternion=robot.home_qpos[None, 3:7],
        base_linear_velocity=np.zeros((1, 3)),
        base_angular_velocity=np.zeros((1, 3)),
        foot_force=np.zeros((1, len(robot.feet), 3)),
        qpos=robot.home_qpos[None],
        meta=env.meta(phase, command),
    )


def alone(*args: object, folder: Path) -> subprocess.CompletedProcess:
    """The exported controller as a user starts it, without this package in sight."""
    return subprocess.run(
        [sys.executable, folder / export.CONTROLLER, *map(str, args)],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DISPLAY")},
        capture_output=True,
        text=True,
    )


def test_the_exported_controller_does_what_the_reference_does(exported, tmp_path):
    """As a program of its own on the closed chain, from home; both tasks for three seconds."""
    env = exported.env
    command = 0.5 * np.array([high for _, high in env.command_ranges.values()])
    steering = ["--command", *command] if len(command) else []
    log = tmp_path / "log.npz"
    done = alone(
        export.POLICY, CLOSED_CHAIN, "--duration-s", 3, *steering, "--save", log,
        folder=exported.folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "on its feet for 3.0" in done.stdout
    start = started(env, env.robot.home_joints, 0.0, command)
    (reference,) = rollout_reference(env, exported.policy, [start], 3.0)
    ours = np.load(log)
    assert len(ours["qpos"]) == len(reference.qpos) == round(3.0 / env.dt) * 6
    # Until the first command arrives, to the last bit.
    np.testing.assert_array_equal(ours["qpos"][:2], reference.qpos[:2])
    # A trot may part from the reference at any landing, see the next test; pitching has none.
    rounding = 100 if len(command) else None
    np.testing.assert_allclose(
        ours["qpos"][:rounding], reference.qpos[:rounding], rtol=0, atol=SAME
    )
    np.testing.assert_allclose(ours["qpos"], reference.qpos, rtol=0, atol=0.05)
    np.testing.assert_allclose(ours["time_s"], 0.003 * np.arange(len(ours["qpos"])), atol=1e-9)
    # It moves: the same as the reference is not the same as standing.
    assert np.ptp(ours["motor_position_rad"], axis=0).max() > 0.1


def test_the_same_as_the_reference_from_any_posture_until_a_landing_is_too_close(
    exported, monkeypatch
):
    """Two seconds from three starts, the feet's contacts watched at every step.

    A foot that is nearer to the floor than the rounding when a time step begins has touched it
    in one run and not yet in the other; from there on they are two robots. The reference parts
    from itself like that, too, when it starts a nanometre higher.
    """
    env = exported.env
    seen, step = [], mujoco.mj_step

    def watched(model, data):
        step(model, data)
        seen.append((data.ncon, np.abs(data.contact.dist).min(initial=1.0)))

    monkeypatch.setattr(mujoco, "mj_step", watched)
    control = exported.controller()
    plant = controller.Plant(control.meta, CLOSED_CHAIN)
    home, whole = plant.data.qpos.copy(), 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        phase = rng.uniform(0.0, 6.0)
        joints = env.robot.home_joints + rng.uniform(-0.05, 0.05, env.action_size)
        start = started(env, joints, phase, control.default_command)
        seen.clear()
        (reference,) = rollout_reference(env, exported.policy, [start], 2.0)
        theirs = np.array(seen)
        plant.reset(reference.qpos[0])
        assert np.abs(plant.data.qpos - home).max() > 0.02
        seen.clear()
        log = controller.run(control, plant, 2.0, phase=phase)
        ours = np.array(seen)
        parted = np.flatnonzero(theirs[:, 0] != ours[:, 0])[:1]
        steps_per_row = len(seen) // len(log["qpos"])
        rows = parted[0] // steps_per_row + 1 if len(parted) else len(log["qpos"])
        np.testing.assert_allclose(log["qpos"][:rows], reference.qpos[:rows], rtol=0, atol=SAME)
        if len(parted):
            assert min(theirs[parted[0], 1], ours[parted[0], 1]) < SAME
        else:
            # Encoders are the motors' own: J times the joints, up to the loops' softness.
            read = reference.joint_position @ env.robot.actuator_map.T
            np.testing.assert_allclose(log["motor_position_rad"], read, rtol=0, atol=5e-5)
            whole += 1
    assert whole  # two seconds without such a landing


def test_contacts_need_the_floor_of_training(exported):
    """The softness of the feet is not in the MJCF alone; without it another robot walks."""
    control = exported.controller()
    meta = control.meta | {"mujoco": control.meta["mujoco"] | {"body_invweight0": {}}}
    logs = [
        controller.run(control, controller.Plant(m, CLOSED_CHAIN), 0.5)
        for m in (control.meta, meta)
    ]
    assert np.abs(logs[0]["qpos"] - logs[1]["qpos"]).max() > 100 * SAME


def test_on_the_serial_model_motors_act_through_the_linkage(exported):
    control, robot = exported.controller(), exported.env.robot
    plant = controller.Plant(control.meta, SERIAL)
    np.testing.assert_allclose(plant.data.qpos, robot.home_qpos)
    position, _ = plant.motors()
    np.testing.assert_allclose(position, robot.actuator_map @ robot.home_joints)
    torque = np.arange(1.0, 13.0)
    plant.step(torque)
    np.testing.assert_allclose(
        plant.data.qfrc_applied[robot.dof_index], robot.actuator_map.T @ torque
    )
    plant.reset()
    log = controller.run(control, plant, 1.0)
    assert not control.fallen(plant.imu()[1])
    assert len(log["action"]) == round(1.0 / exported.env.dt)


def test_a_bare_model_stands_on_a_floor(exported, tmp_path):
    spec = mujoco.MjSpec.from_file(str(SERIAL))
    spec.delete(spec.geom("floor"))
    spec.compile()
    (tmp_path / "bare.xml").write_text(spec.to_xml())
    control = exported.controller()
    plant = controller.Plant(control.meta, tmp_path / "bare.xml")
    controller.run(control, plant, 0.5)
    assert plant.data.ncon >= 2
    assert plant.data.qpos[2] > 0.25
    # A floor of another name is a floor.
    spec = mujoco.MjSpec.from_file(str(SERIAL))
    spec.geom("floor").name = "ground"
    spec.compile()
    (tmp_path / "ground.xml").write_text(spec.to_xml())
    model = controller.Plant(control.meta, tmp_path / "ground.xml").model
    assert sum(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) == 1


def observed(env: RobotEnv):
    """``(qpos, qvel, action, phase, command) -> observation``, compiled."""

    @jax.jit
    def observe(qpos, qvel, action, phase, command):
        simulation = SimulationState(
            qpos=qpos,
            qvel=qvel,
            qvel_last=qvel,
            qacc_warmstart=jnp.zeros_like(qvel),
            command_history=jnp.zeros((0, env.action_size)),
        )
        return env.observe(TaskState(simulation, action, phase, command))

    return observe


def test_every_block_of_the_layout_holds_what_it_says(exported):
    """One part of the state is changed at a time, and its block alone follows."""
    env, robot, nu = exported.env, exported.env.robot, exported.env.action_size
    rng = np.random.default_rng(0)
    observe = observed(env)
    qpos = robot.home_qpos + rng.uniform(-0.2, 0.2, robot.model.nq)
    qpos[3:7] /= np.linalg.norm(qpos[3:7])
    qvel = rng.uniform(-2.0, 2.0, robot.model.nv)
    action, phase = rng.uniform(-1.0, 1.0, nu), 0.7
    command = rng.uniform(0.1, 0.9, len(env.command_ranges))
    other = {
        "gyro": (qpos, np.r_[qvel[:3], 0.1, 0.2, 0.3, qvel[6:]], action, phase, command),
        "gravity": (np.r_[qpos[:3], 0.6, 0.0, 0.8, 0.0, qpos[7:]], qvel, action, phase, command),
        "joint_position": (np.r_[qpos[:7], robot.home_joints], qvel, action, phase, command),
        "joint_velocity": (qpos, np.r_[qvel[:6], np.ones(nu)], action, phase, command),
        "last_action": (qpos, qvel, np.full(nu, 0.25), phase, command),
        "clock": (qpos, qvel, action, 2.5, command),
    }
    expected = {
        "gyro": [0.1, 0.2, 0.3],
        "gravity": [0.96, 0.0, 0.28],  # turned by 106 deg about y
        "joint_position": np.zeros(nu),
        "joint_velocity": np.full(nu, 0.1),
        "last_action": np.full(nu, 0.25),
        "clock": [np.sin(2.5), np.cos(2.5)],
    }
    follows = {name: {name} for name in other}
    if len(command):
        other["command"] = (qpos, qvel, action, phase, command + 0.05)
        expected["command"] = command + 0.05
        follows["command"] = {"command"}
    else:
        follows["clock"] = {"clock", "command"}
        expected["command"] = [0.1 * np.sin(2.5), np.pi * np.cos(2.5)]

    layout = exported.meta["observation"]
    sizes = [len(block["elements"]) for block in layout]
    assert sum(sizes) == env.observation_size
    ends = np.cumsum(sizes)
    places = {
        block["name"]: slice(end - size, end)
        for block, end, size in zip(layout, ends, sizes, strict=True)
    }
    assert set(places) == set(expected)
    for block in layout:
        if block["name"].startswith("joint_"):
            assert block["elements"] == list(robot.joints)
    before = np.asarray(observe(qpos, qvel, action, phase, command))
    for name, state in other.items():
        after = np.asarray(observe(*state))
        moved = {n for n, place in places.items() if np.any(after[place] != before[place])}
        assert moved == follows[name]
        for changed in moved:
            np.testing.assert_allclose(after[places[changed]], expected[changed], atol=1e-6)


def test_the_controller_sees_what_the_environment_sees(exported):
    """From the motors' encoders, far from home and in motion; also what no sensor should say."""
    env, robot = exported.env, exported.env.robot
    rng = np.random.default_rng(1)
    control, observe = exported.controller(), observed(env)
    control.reset(phase=1.1)
    action = np.zeros(env.action_size)
    for step in range(4):
        qpos = robot.home_qpos + rng.uniform(-0.3, 0.3, robot.model.nq)
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
        qvel = rng.uniform(-4.0, 4.0, robot.model.nv)
        if step == 3:
            qvel[3:5] = np.nan, 1e6
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, qpos[3:7])
        command = rng.uniform(0.1, 0.9, len(env.command_ranges))
        target = control.step(
            qvel[3:6],
            -rotation.reshape(3, 3)[2],
            robot.actuator_map @ qpos[robot.qpos_index],
            robot.actuator_map @ qvel[robot.dof_index],
            command,
        )
        phase = np.mod(1.1 + 2.0 * np.pi * env.clock_hz * env.dt * step, 2.0 * np.pi)
        expected = np.asarray(observe(qpos, qvel, action, phase, command))
        np.testing.assert_allclose(control.observation, expected, atol=2e-6)
        action = control.action
        wanted = robot.actuator_map @ np.asarray(env.joint_targets(jnp.asarray(action)))
        np.testing.assert_allclose(target, wanted, atol=1e-6)
    if len(command):
        # Beyond what it was trained for it is told the nearest that it knows.
        control.step(np.zeros(3), [0, 0, -1], np.zeros(12), np.zeros(12), [9.0, -9.0])
        np.testing.assert_array_equal(control.observation[-2:], [1.0, -1.0])
        with pytest.raises(ValueError, match="command: 2 numbers are needed"):
            control.step(np.zeros(3), [0, 0, -1], np.zeros(12), np.zeros(12), [0.5])


def test_the_file_says_what_the_robot_is(exported):
    meta, robot, env = exported.meta, exported.env.robot, exported.env
    model = exported.model
    assert model.opset_import[0].version == 13
    assert model.ir_version == 7
    assert (meta["kind"], meta["format"]) == ("s3n_mjx policy", 1)
    assert meta["task"] == exported.checkpoint.task
    assert meta["robot"] == "parallel_quadruped"
    assert meta["joints"] == list(robot.joints)
    assert meta["motors"] == list(robot.joints)  # the bundled MJCF names them alike
    assert meta["closed_chain_joints"][:3] == ["FL_abduction", "FL_hip", "FL_crank"]
    assert meta["feet"] == ["FL_foot", "FR_foot", "RL_foot", "RR_foot"]
    assert (meta["trunk"], meta["floor"]) == ("trunk", "floor")
    np.testing.assert_array_equal(meta["actuator_map"], robot.actuator_map)
    assert set(meta["kp_nm_rad"]) == {50.0}
    assert set(meta["kd_nms_rad"]) == {1.5}
    assert set(meta["torque_limit_nm"]) == {30.0}
    assert meta["torque_delay_s"] == pytest.approx(0.003)
    assert meta["policy_period_s"] == pytest.approx(0.018)
    assert meta["pd_period_s"] == 0.003
    assert meta["action_scale_rad"] == env.body.action_scale_rad
    assert meta["fall_tilt_rad"] == 0.6
    still = np.asarray(env.joint_targets(jnp.zeros(12)))
    np.testing.assert_array_equal(meta["standing_target_rad"], still)
    np.testing.assert_array_equal(meta["home_joints_rad"], robot.home_joints)
    np.testing.assert_array_equal(meta["home_base"], robot.home_qpos[:7])
    assert meta["observation_limit"] == 100.0
    assert meta["clock_hz"] == env.clock_hz
    assert {c["name"]: tuple(c["range"]) for c in meta["commands"]} == env.command_ranges
    assert all(c["default"] == 0.8 for c in meta["commands"])
    told = meta["checkpoint"]
    assert told["env_steps"] == exported.checkpoint.env_steps
    assert told["params_sha256"] == exported.checkpoint.metadata["params_sha256"]
    assert told["versions"]["brax"] == exported.checkpoint.metadata["versions"]["brax"]
    assert {"s3n_mjx", "onnx", "onnxruntime"} <= set(meta["versions"])
    # What S3N adds acts in the simulator only.
    assert not any("armature" in key or "lagged" in key for key in json.dumps(meta).split('"'))


def test_it_says_where_things_lie_and_what_comes_next(exported):
    said = exported.said
    assert re.search(r"ONNX and JAX differ by \d\.\de-07 at most, over 10,000", said)
    assert f"policy:     {exported.folder / 'policy.onnx'}" in said
    assert sorted(f.name for f in exported.folder.iterdir()) == ["controller.py", "policy.onnx"]
    command = said.strip().splitlines()[-1]
    done = subprocess.run(
        [*command.split(), "--duration-s", "0.05"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_controller_needs_three_packages():
    source = Path(controller.__file__).read_text()
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
    assert imported - sys.stdlib_module_names == {"numpy", "onnxruntime", "mujoco"}
    # A robot has no MuJoCo.
    head = source[: source.index("class Plant")]
    assert "import mujoco" not in head


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("nope.onnx {mjcf}", "nope.onnx: no such file"),
        ("controller.py {mjcf}", "controller.py: "),
        ("policy.onnx nope.xml", "nope.xml: no such file"),
        ("policy.onnx controller.py", "controller.py: "),
        ("policy.onnx {mjcf} --command 0.5", "--command: the task takes vx_m_s and wz_rad_s"),
        ("policy.onnx {mjcf} --command 0.5 4", "--command: wz_rad_s is trained from -1 to 1"),
        ("policy.onnx {mjcf} --duration-s 0.01", "--duration-s: less than a policy step"),
        ("policy.onnx ball.xml", "ball.xml: no body 'trunk'; it is another robot"),
        ("policy.onnx {mjcf} --viewer", "--viewer: no screen"),
    ],
)
def test_mistakes_with_the_controller_are_one_line(circle, args, says, monkeypatch, tmp_path):
    for name in (export.POLICY, export.CONTROLLER):
        shutil.copy(circle.folder / name, tmp_path)
    (tmp_path / "ball.xml").write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "argv", ["controller.py", *args.format(mjcf=SERIAL).split()])
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        controller.main()
    assert "\n" not in str(caught.value)


def test_the_window_shows_every_step_until_it_is_closed(circle, monkeypatch, capsys):
    shown = []

    class Viewer(contextlib.AbstractContextManager):
        def __init__(self, model, data, **_):
            self.data = data

        def __exit__(self, *_):
            return None

        def sync(self):
            shown.append(self.data.time)

        def is_running(self):
            return len(shown) < 4

    monkeypatch.setattr(mujoco.viewer, "launch_passive", Viewer)
    monkeypatch.setenv("DISPLAY", ":0")
    policy = str(circle.folder / export.POLICY)
    monkeypatch.setattr(sys, "argv", ["controller.py", policy, str(CLOSED_CHAIN), "--viewer"])
    controller.main()
    np.testing.assert_allclose(shown, circle.env.dt * np.arange(1, 5))
    assert "on its feet for 0.07 s" in capsys.readouterr().out


def test_a_mistake_ends_with_code_2(circle):
    done = alone("nope.onnx", CLOSED_CHAIN, folder=circle.folder)
    assert (done.returncode, done.stderr) == (2, "error: nope.onnx: no such file\n")


def test_a_time_step_that_does_not_fit_is_said(circle):
    control = circle.controller()
    plant = controller.Plant(control.meta, SERIAL)
    plant.model.opt.timestep = 0.002
    with pytest.raises(ValueError, match=r"time step 0\.002 s is no whole part"):
        controller.run(control, plant, 1.0)


def test_other_onnx_files_are_refused(circle, tmp_path):
    model = circle.model
    (prop,) = (prop for prop in model.metadata_props if prop.key == "format")
    prop.value = "2"
    onnx.save_model(model, str(tmp_path / "later.onnx"))
    with pytest.raises(ValueError, match="policy format 2, this controller reads 1"):
        controller.Controller(tmp_path / "later.onnx")
    del model.metadata_props[:]
    onnx.save_model(model, str(tmp_path / "foreign.onnx"))
    with pytest.raises(ValueError, match=r"not a policy of s3n_mjx\.export"):
        controller.Controller(tmp_path / "foreign.onnx")


def test_mistakes_with_the_export_are_one_line(circle, tmp_path, monkeypatch):
    def refused(checkpoint: object, out: Path) -> str:
        with pytest.raises(UserError) as caught:
            export.main(["--checkpoint", str(checkpoint), "--out", str(out)])
        assert "\n" not in str(caught.value)
        return str(caught.value)

    shipped = circle.checkpoint.path
    assert "no such checkpoint" in refused(tmp_path / "nope", tmp_path / "out")
    (tmp_path / "file").write_text("")
    assert "--out: " in refused(shipped, tmp_path / "file")
    changed = tmp_path / "changed"
    shutil.copytree(circle.folder, changed)
    (changed / export.CONTROLLER).write_text("# my robot\n")
    before = (changed / export.POLICY).stat().st_mtime_ns
    assert "controller.py is not the example as it comes; move it away" in refused(shipped, changed)
    assert (changed / export.CONTROLLER).read_text() == "# my robot\n"
    assert (changed / export.POLICY).stat().st_mtime_ns == before
    # A network that is not the policy never lands on a robot.
    monkeypatch.setattr(export, "actions_onnx", lambda *args: actions_onnx(*args) + 1e-3)
    assert "differs from the one in JAX by up to 1.0e-03" in refused(shipped, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_folders_stand_beside_those_of_eval():
    run = Path("runs/mine/checkpoints/000000614400")
    assert default_folder(run, "export") == Path("runs/mine/export/000000614400")
    shipped = assets_folder() / "policies" / "circle-s3n_full"
    assert default_folder(shipped, "export") == Path("runs/export/circle-s3n_full")


def test_a_robot_without_a_closed_chain_is_exported_too(circle, write_robot, description):
    """With a robot to try it on: the serial MJCF as it was simulated."""
    robot = load_robot(write_robot(description))
    checkpoint = dataclasses.replace(circle.checkpoint, robot=robot)
    model, parity = export.export(checkpoint)
    assert max(parity.values()) < export.PARITY
    folder = robot.path.parent
    export.write(model, export.stand_in(checkpoint, folder), folder)
    with (folder / "serial.zip").open("wb") as file:
        load_spec(folder / "serial.xml").to_zip(file)
    control = controller.Controller(folder / export.POLICY)
    logs = [
        controller.run(control, controller.Plant(control.meta, folder / name), 0.5)
        for name in ("serial.xml", "serial.zip", export.ROBOT)
    ]
    np.testing.assert_array_equal(logs[0]["qpos"], logs[1]["qpos"])
    assert all(len(log["action"]) == round(0.5 / circle.env.dt) for log in logs)
    # S3N's inertia is in the latter alone.
    assert np.abs(logs[2]["qpos"] - logs[0]["qpos"]).max() > 1e-4
    assert export.stand_in(circle.checkpoint, folder) is None


def test_joints_that_the_description_holds_do_not_hang_loose(circle, tmp_path, robot):
    """On an MJCF that still has them: two more joints on the trunk."""
    spec = load_spec(CLOSED_CHAIN)
    arm = spec.body("trunk").add_body(name="arm", pos=[0.1, 0, 0.1])
    arm.add_joint(name="shoulder", axis=[0, 1, 0], ref=0.1)
    arm.explicitinertial = True
    arm.mass, arm.ipos, arm.inertia = 0.2, [0.2, 0, 0], [1e-4] * 3
    for key in list(spec.keys):
        spec.delete(key)
    path = tmp_path / "with_arm.xml"
    path.write_text(spec.to_xml())
    meta = json.loads(json.dumps(circle.meta))
    meta["mujoco"]["held"] = {"shoulder": 0.7}
    meta["mujoco"]["home_qpos"]["shoulder"] = 0.7
    plant = controller.Plant(meta, path)
    for _ in range(300):
        plant.step(np.zeros(12))
    assert plant.data.joint("shoulder").qpos[0] == pytest.approx(0.7, abs=0.02)

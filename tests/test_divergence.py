"""Diverged physics is counted in the graph, kept once by the run, and replayed in C MuJoCo."""

import shutil
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import yaml

from s3n_mjx import replay as command
from s3n_mjx.cli import run
from s3n_mjx.envs import CircleConfig, CircleEnv
from s3n_mjx.envs.divergence import SPEED_LIMIT, Divergence, diverged
from s3n_mjx.envs.randomization import DRAWS, RandomizationConfig
from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Variant
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import StepRecord
from s3n_mjx.training import divergence
from s3n_mjx.training.config import CircleRun, PitchRun
from s3n_mjx.training.divergence import DivergenceWatch
from s3n_mjx.validation import replay

ENVS = 4
FLYING, BROKEN = 1, 3  # environments that diverge: by speed, and by NaN
CONFIG = PitchRun(simulation=SimulationConfig(variant=Variant.KIN_ONLY_HR), seed=7)


def rows(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)


def equal(one: Any, other: Any) -> None:
    """Bit for bit, NaN included."""
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(one), jax.device_get(other))


def with_velocity(state, changes: dict[int, tuple[int, float]]):
    """``state`` with one entry of some environments' qvel changed: {environment: (dof, value)}."""
    state = jax.tree.map(jnp.asarray, state)
    simulation = state.pipeline_state.simulation
    qvel = simulation.qvel
    for index, (dof, value) in changes.items():
        qvel = qvel.at[index, dof].set(value)
    simulation = simulation.replace(qvel=qvel)
    return state.replace(pipeline_state=state.pipeline_state.replace(simulation=simulation))


@pytest.fixture(scope="module")
def sane(pitch_env, wrapped_pitch):
    """After two steps."""
    state = wrapped_pitch.reset(jax.random.split(jax.random.PRNGKey(0), ENVS))
    for _ in range(2):
        state = wrapped_pitch.step(state, jnp.zeros((ENVS, pitch_env.action_size)))
    return jax.device_get(state)


@pytest.fixture(scope="module")
def after(pitch_env, wrapped_pitch, sane):
    """A step from there."""
    return jax.device_get(wrapped_pitch.step(sane, jnp.zeros((ENVS, pitch_env.action_size))))


@pytest.fixture(scope="module")
def absurd(sane):
    """One thrown upwards, faster than any robot, and one that is no number."""
    return with_velocity(sane, {FLYING: (2, 1e4), BROKEN: (9, np.nan)})


@pytest.fixture(scope="module")
def once(pitch_env, wrapped_pitch, absurd):
    """A step from there."""
    return jax.device_get(wrapped_pitch.step(absurd, jnp.zeros((ENVS, pitch_env.action_size))))


# --- in the graph -------------------------------------------------------------------------


def test_what_counts_as_diverged(sane):
    simulation = rows(sane.pipeline_state.simulation, 0)
    assert not diverged(simulation)
    for name in vars(simulation):
        value = np.array(getattr(simulation, name))
        for bad in (np.nan, np.inf):
            value.flat[-1] = bad
            assert diverged(simulation.replace(**{name: value})), name
    assert diverged(simulation.replace(qvel=np.full_like(simulation.qvel, -SPEED_LIMIT)))


def test_it_is_counted_where_it_happens_and_what_it_began_with_is_kept(
    pitch_env, sane, absurd, once
):
    equal(sane.info["divergence"].count, np.zeros(ENVS, np.int32))
    kept = once.info["divergence"]
    equal(kept.count, np.array([0, 1, 0, 1], np.int32))
    equal(once.done, np.array([0, 1, 0, 1], np.float32))
    assert np.isfinite(once.pipeline_state.simulation.qvel).all()  # reset
    equal(kept.survived, np.array([3, 2, 3, 2], np.int32))
    for index in (FLYING, BROKEN):
        equal(rows(kept.start, index), rows(absurd.pipeline_state.simulation, index))
        equal(rows(kept.target, index), pitch_env.simulation.standing_target)
    for index in (0, 2):
        assert not any(leaf.any() for leaf in jax.tree.leaves(rows(kept.start, index)))


def test_a_second_one_is_counted_and_the_first_one_kept(wrapped_pitch, once):
    again = wrapped_pitch.step(
        with_velocity(once, {FLYING: (2, 2e4), 0: (0, np.inf)}), jnp.zeros((ENVS, 12))
    )
    kept = again.info["divergence"]
    equal(kept.count, np.array([1, 2, 0, 1], np.int32))
    for index in (FLYING, BROKEN):
        equal(rows(kept.start, index), rows(once.info["divergence"].start, index))
    equal(kept.survived, np.array([3, 2, 4, 2], np.int32))


def test_targets_show_a_policy_that_is_no_number(wrapped_pitch, sane):
    after = wrapped_pitch.step(sane, jnp.zeros((ENVS, 12)).at[2].set(jnp.nan))
    kept = after.info["divergence"]
    equal(kept.count, np.array([0, 0, 1, 0], np.int32))
    assert np.isnan(kept.target[2]).all()
    equal(rows(kept.start, 2), rows(sane.pipeline_state.simulation, 2))


def test_what_is_kept_is_what_physics_began_with_after_a_push(robot, monkeypatch):
    task = CircleConfig(randomization=RandomizationConfig(push_m_s=0.5, push_interval_s=0.01))
    env = CircleEnv(robot, task=task)
    substeps, feet, got = env.simulation.config.substeps, len(robot.feet), []

    def broken(model, state, target):
        """In place of physics, which is what takes long to compile."""
        got.append((state, target))
        shapes = {"qpos": robot.model.nq, "qvel": robot.model.nv, "motor_torque": 12}
        record = {name: jnp.zeros((substeps, n)) for name, n in shapes.items()}
        positions = jnp.zeros((substeps, feet, 3))
        return jax.tree.map(lambda x: x * jnp.nan, state), StepRecord(
            **record,
            foot_force=positions,
            foot_position=positions,
            body_contact=jnp.zeros(substeps, bool),
        )

    monkeypatch.setattr(env.simulation, "control_step", broken)

    @jax.jit
    def step(key):
        state = env.reset(key)
        reset = state.pipeline_state.simulation
        after = env.step(state, jnp.full(env.action_size, 0.3))
        return reset, got[-1], after.info["divergence"], after.done

    reset, (start, target), kept, done = jax.device_get(step(jax.random.PRNGKey(0)))
    assert (kept.count, kept.survived, done) == (1, 0, 1)
    equal(kept.start, start)
    equal(kept.target, target)
    assert (start.qvel[:2] != reset.qvel[:2]).all()


# --- what the run keeps -------------------------------------------------------------------


def over_devices(state):
    """As Brax has it: (devices, environments each, ...), on both devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    return jax.tree.map(
        lambda x: jax.device_put(np.asarray(x).reshape(2, ENVS // 2, *x.shape[1:]), sharding), state
    )


def test_a_run_says_one_line_and_keeps_one_dump(tmp_path, pitch_env, sane, absurd, once, capsys):
    watch = DivergenceWatch(tmp_path, pitch_env, CONFIG)
    assert watch.check(over_devices(sane), 1000) == 0
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == ""

    assert watch.check(over_devices(once), 2000) == 2
    path = tmp_path / "diverged" / "000000002000"
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "in 2 of 4 environments" in line
    assert f"-m s3n_mjx.replay --dump {path}" in line

    dump = divergence.load(path)
    assert (dump.env_steps, dump.environment, dump.config) == (2000, FLYING, CONFIG)
    equal(dump.start, rows(absurd.pipeline_state.simulation, FLYING))
    equal(dump.target, pitch_env.simulation.standing_target)
    equal(dump.draws["leg_links"], rows(once.info["leg_links"], FLYING))
    assert set(dump.metadata["versions"]) >= {"s3n_mjx", "mujoco", "jax"}

    assert watch.check(over_devices(once), 3000) == 2
    assert capsys.readouterr().err == ""
    # A run that is resumed has its dump already, and says so.
    assert DivergenceWatch(tmp_path, pitch_env, CONFIG).check(once, 4000) == 2
    assert str(path) in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "diverged").iterdir()] == ["000000002000"]
    assert divergence.load(tmp_path).path == path  # the run's folder will do


def test_a_dump_that_cannot_be_written_stops_nothing(tmp_path, pitch_env, once, capsys):
    (tmp_path / "diverged").write_text("no folder")
    assert DivergenceWatch(tmp_path, pitch_env, CONFIG).check(once, 1000) == 2
    line = capsys.readouterr().err
    assert "could not be kept" in line
    assert line.count("\n") == 1


@pytest.fixture(scope="module")
def diverged_dump(tmp_path_factory, pitch_env, once):
    folder = tmp_path_factory.mktemp("diverged")
    DivergenceWatch(folder, pitch_env, CONFIG).check(once, 1000)
    return divergence.load(folder).path


def _rewrite(path, **changes):
    file = path / "divergence.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: (path / "divergence.yaml").unlink(), "divergence.yaml is missing"),
        (lambda path: (path / "divergence.yaml").write_text("a: ["), "not valid YAML"),
        (lambda path: (path / "state.npz").write_bytes(b""), "state.npz is missing or changed"),
        (lambda path: (path / "robot" / "robot.yaml").unlink(), "robot.yaml is missing"),
        (lambda path: _rewrite(path, kind="other"), "not a dump"),
        (lambda path: _rewrite(path, format=9), "format 9, this version reads 1"),
        (lambda path: _rewrite(path, task="dance"), "task 'dance'"),
        (lambda path: _rewrite(path, environment=None), "damaged"),
    ],
)
def test_what_is_no_dump_is_one_line(tmp_path, diverged_dump, damage, said):
    path = shutil.copytree(diverged_dump, tmp_path / diverged_dump.name)
    damage(path)
    with pytest.raises(UserError, match=said) as caught:
        divergence.load(path)
    assert "\n" not in str(caught.value)


# --- replay -------------------------------------------------------------------------------


def test_c_gets_the_environments_own_robot(robot):
    """Every number that the draws change, and what C MuJoCo derives from them."""
    task = CircleConfig(
        randomization=RandomizationConfig(friction_scale=(0.5, 1.5), payload_kg=(1.0, 2.0))
    )
    env = CircleEnv(robot, task=task)
    info = jax.device_get(jax.jit(env.reset)(jax.random.PRNGKey(5))).info
    nominal, drawn, mjx = env.normalized.model, env.c_model_of(info), env.model_of(info)
    for name in ("body_mass", "body_inertia", "body_ipos"):
        np.testing.assert_allclose(getattr(drawn, name), getattr(mjx, name), rtol=1e-6)
        assert (getattr(drawn, name) != getattr(nominal, name)).any()
    # MJX's model has no geoms to look at, so that ids differ.
    for name in (robot.floor, *robot.feet):
        friction = mjx.geom_friction[env.normalized.tree.geom(name).id]
        np.testing.assert_allclose(drawn.geom(name).friction, friction, rtol=1e-6)
    changed = (drawn.geom_friction != nominal.geom_friction).any(axis=1)
    assert {drawn.geom(i).name for i in np.nonzero(changed)[0]} == {robot.floor, *robot.feet}
    assert drawn.body_subtreemass[0] == pytest.approx(drawn.body_mass.sum())
    assert drawn.body_mass.sum() > nominal.body_mass.sum() + 0.9
    data = mujoco.MjData(drawn)
    data.qpos[:] = robot.home_qpos
    mujoco.mj_kinematics(drawn, data)
    moved = data.xpos + np.einsum("bij,bj->bi", data.xmat.reshape(-1, 3, 3), drawn.body_ipos)
    np.testing.assert_allclose(data.xipos, moved, atol=1e-9)


def test_a_sane_step_is_replayed_as_it_was(tmp_path, pitch_env, sane, after):
    """MJX as the environment stepped it, to rounding; and C MuJoCo as MJX."""
    path = divergence.write(
        tmp_path / "dump",
        1234,
        CONFIG,
        pitch_env.robot,
        Divergence(
            count=np.int32(0),
            survived=np.int32(2),
            start=rows(sane.pipeline_state.simulation, 2),
            target=np.asarray(pitch_env.simulation.standing_target),
        ),
        rows({name: sane.info[name] for name in DRAWS if name in sane.info}, 2),
        environment=2,
    )
    dump = divergence.load(path)
    reached = rows(after.pipeline_state.simulation, 2)
    mjx = replay.in_mjx(pitch_env, dump)
    assert len(mjx.contacts) == pitch_env.simulation.config.substeps
    np.testing.assert_allclose(mjx.qpos[-1], reached.qpos, atol=1e-6)
    np.testing.assert_allclose(mjx.qvel[-1], reached.qvel, atol=1e-4)
    np.testing.assert_allclose(mjx.qacc[-1], reached.qacc_warmstart, atol=1e-2)

    trained = replay.in_c(pitch_env, dump)
    exact = replay.in_c(pitch_env, dump, exact=True)
    np.testing.assert_allclose(trained.qpos, mjx.qpos, atol=1e-5)
    np.testing.assert_allclose(trained.qvel, mjx.qvel, atol=2e-3)
    np.testing.assert_array_equal(trained.contacts, mjx.contacts)
    assert len(replay.in_c(pitch_env, dump, more=2).contacts) == 3 * len(trained.contacts)
    assert replay.verdict(pitch_env, trained, exact, mjx).startswith("neither")
    # The draws matter: another robot moves otherwise.
    other = dump.draws | {"leg_links": rows(sane.info["leg_links"], 0)}
    elsewhere = replay.in_c(pitch_env, replace(dump, draws=other))
    apart = np.abs(trained.qvel[-1] - mjx.qvel[-1]).max()
    assert np.abs(elsewhere.qvel[-1] - trained.qvel[-1]).max() > 10.0 * apart


def test_the_command_replays_a_dump(diverged_dump, capsys):
    command.main(["--dump", str(diverged_dump), "--steps", "1", "--exact"])
    out = capsys.readouterr().out
    table = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert len(table) == 1 + 2 * 6
    assert table[0][:3] == ["0", "1e+04", "root.z"]
    assert "C MuJoCo, double precision, 100 iterations" in out
    assert "MJX as trained, float32, 4 iterations" in out
    assert "the start: root.z moves at 1e+04" in out


def test_a_step_without_numbers_is_not_replayed(pitch_env, diverged_dump):
    dump = divergence.load(diverged_dump)
    assert replay.not_finite(pitch_env, dump) is None
    said = replay.not_finite(pitch_env, replace(dump, target=np.full(12, np.nan)))
    assert said.startswith("the policy")
    broken = dump.start.replace(qvel=dump.start.qvel * np.nan)
    said = replay.not_finite(pitch_env, replace(dump, start=broken))
    assert said.startswith("the start: qvel")


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ({"trained", "exact", "mjx"}, "both"),
        ({"trained", "mjx"}, "the solver"),
        ({"mjx"}, "MJX alone"),
        ({"exact"}, "C MuJoCo alone"),
        (set(), "neither"),
    ],
)
def test_verdict(pitch_env, where, word):
    model = pitch_env.normalized.model

    def trace(name):
        qvel = np.zeros((3, model.nv))
        qvel[2, 7] = 2e3 if name in where else 0.0
        qpos = np.tile(pitch_env.robot.home_qpos, (3, 1))
        return replay.Trace(name, qpos, qvel, qvel[1:], np.zeros(2, int), np.zeros((2, 4, 3)))

    said = replay.verdict(pitch_env, *map(trace, ("trained", "exact", "mjx")))
    assert said.startswith(word)
    assert len(said.splitlines()) <= 2


def test_missing_dump_ends_with_code_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        run(command.main, ["--dump", str(tmp_path / "none")])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_robot_without_draws_is_the_nominal_one(robot, diverged_dump):
    assert "8 randomized links" in replay.drawn(divergence.load(diverged_dump))
    env = CircleEnv(robot, task=CircleRun().env)
    np.testing.assert_array_equal(env.c_model_of({}).body_mass, env.normalized.model.body_mass)

"""Whatever a user's file or command line holds: it loads, or one line says what is wrong where.

Every test damages something that loads, by hypothesis, and asks for that alone: never another
exception, a warning, a hang or a file left behind, and no NaN let in. The examples are the same in
every run; the variants marked `slow` take ten times as many.
"""

import contextlib
import copy
import dataclasses
import datetime
import hashlib
import itertools
import json
import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import flax.serialization
import jax
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from s3n_mjx import train
from s3n_mjx.config_files import read_yaml, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.log_files import write_table
from s3n_mjx.evaluation.logs import read_log, write_log
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.identification.excitation import Multisine
from s3n_mjx.identification.logs import TorqueLog, read_torque_log, write_torque_log
from s3n_mjx.identification.records import record_of
from s3n_mjx.resources import bundled_robot, presets_folder
from s3n_mjx.robot.description import load_description, numbers
from s3n_mjx.robot.model import Robot, load_robot
from s3n_mjx.robot.survey import survey
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training.config import RUNS, RunConfig, load_preset
from s3n_mjx.training.metrics_log import MetricsFile, read_rows
from s3n_mjx.training.policy import initial_params, load_params
from s3n_mjx.training.run import CONFIG_FILE, load_config

HANG_S = 60  # of one example, on a busy machine
LONGEST = 2000  # characters that still are a line to read

thorough = pytest.mark.parametrize(
    "times", [1, pytest.param(10, marks=pytest.mark.slow)], ids=["quick", "thorough"]
)


@pytest.fixture(scope="module", autouse=True)
def work(tmp_path_factory) -> Iterator[Path]:
    """Current folder of these tests, where a stray file would land."""
    folder = tmp_path_factory.mktemp("fuzz")
    with contextlib.chdir(folder):
        yield folder


def fuzz(check: Callable[..., None], examples: int, *strategies: st.SearchStrategy) -> None:
    """Call ``check`` with what the strategies draw."""
    settled = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        # Explaining is slow, and of no use on a file's bytes.
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    @settled
    @given(st.tuples(*strategies))
    def run(drawn):
        check(*drawn)

    run()


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file in a folder, by its name."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            state = os.lstat(os.path.join(root, name))
            found[os.path.join(root, name)] = (state.st_size, state.st_mtime_ns)
    return found


# Of a Python program, which are nothing to a person.
_LEAKS = ("Traceback", 'File "', "object at 0x", "validation error", "pydantic", "<class")


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"took more than {HANG_S} s")


def loads_or_says(load: Callable[[], Any], where: str) -> Any:
    """What ``load`` returns, or None where it refuses as it should.

    Args:
        load: what is tried, on something in the current folder.
        where: what the message has to hold: a file, a folder, a flag's dashes.
    """
    before = _files(Path.cwd())
    old = signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(HANG_S)
    try:
        return load()
    except UserError as error:
        said = str(error)
        assert said.isprintable(), said  # so it is one line, too
        assert where in said
        assert len(said.replace(where, "")) > 5
        assert len(said) < LONGEST
        for leak in _LEAKS:
            assert leak not in said
        return None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
        assert _files(Path.cwd()) == before


# --- damage ------------------------------------------------------------------------------------

_ODD = st.one_of(
    st.sampled_from(
        [
            None, True, False, [], {}, [[]], {"a": 1}, [1, 2, 3], "", " ", "a\nb", "\0", "\ud800",
            "\x1b[31m", "Ω関節😀", "\u2028", "x" * 5000, "nan", "1e3", "0.5", "TODO", ".", "..",
            "robot.yaml", "serial.xml", "/dev/null", "/", "~", math.nan, math.inf, -math.inf, 0, -1,
            -0.0, 5e-324, 1e-200, 1e200, -1e300, 1.7e308, 10**30, 10**400, -(10**400), 2**63, 2**31,
            datetime.date(2026, 1, 31), datetime.datetime(2026, 1, 31), b"bytes", {None: 1},
            {1: 2}, {"": ""}, [None], [math.nan, math.nan], [[1.0, 0.0], [1.0, 1.0]],
        ]
    ),
    st.floats(),
    st.integers(),
    st.text(max_size=8),
)  # fmt: skip
_KEYS = st.one_of(
    st.sampled_from(
        ["format", "", " ", "a.b", "name", "a\nb", "\ud800", "k" * 3000, None, 3, True]
    ),
    st.floats(allow_nan=False),
    st.text(max_size=6),
)
_DEEDS = ("replace", "replace", "delete", "double", "rename", "swap", "text", "wrap", "scale")


def _slots(tree: Any, found: list) -> list:
    """Every (container, key) of nested dicts and lists, in their order."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        found.append((tree, key))
        if isinstance(value, (dict, list)):
            _slots(value, found)
    return found


@st.composite
def damaged(draw, tree: Any, deeds: int = 3) -> Any:
    """Plain containers with some values deleted, doubled, renamed or made something else."""
    tree = json.loads(json.dumps(tree))
    for _ in range(draw(st.integers(1, deeds))):
        slots = _slots(tree, [])
        if not slots:
            break
        holder, key = slots[draw(st.integers(0, len(slots) - 1))]
        deed = draw(st.sampled_from(_DEEDS))
        value = holder[key]
        if deed == "replace":
            holder[key] = copy.deepcopy(draw(_ODD))  # it may be damaged, too
        elif deed == "delete":
            del holder[key]
        elif deed == "double" and isinstance(holder, list):
            holder.insert(key, value)
        elif deed in ("double", "rename") and isinstance(holder, dict):
            holder[draw(_KEYS)] = holder.pop(key) if deed == "rename" else value
        elif deed == "swap":
            other, its = slots[draw(st.integers(0, len(slots) - 1))]
            holder[key], other[its] = json.loads(json.dumps([other[its], value], default=str))
        elif deed == "text":
            holder[key] = str(value)
        elif deed == "wrap":
            holder[key] = draw(st.sampled_from([[value], {"x": value}, [value, value]]))
        elif deed == "scale" and isinstance(value, (int, float)) and math.isfinite(value):
            holder[key] = float(value) * draw(
                st.sampled_from([-1.0, 0.0, 1e-9, 1e-3, 1e3, 1e9, 1e100, 1e-300])
            )
        if draw(st.integers(0, 9)) == 0 and isinstance(tree, dict) and tree:
            tree = dict(sorted(tree.items(), key=str, reverse=True))
    return tree


def yaml_text(tree: Any) -> bytes:
    """As YAML; surrogates are written as escapes."""
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=False).encode()


@st.composite
def edited(draw, content: bytes, pieces: list[bytes]) -> bytes:
    """Bytes with some cut out, some put in, and some lines doubled."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        deed = draw(st.integers(0, 9))
        if deed == 0:
            content = content[:start]
        elif deed == 1:
            lines = content.split(b"\n")
            at = draw(st.integers(0, len(lines) - 1))
            content = b"\n".join([*lines[: at + 1], *lines[at:]])
        elif deed == 2:
            lines = content.split(b"\n")
            at, to = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[at], lines[to] = lines[to], lines[at]
            content = b"\n".join(lines)
        else:
            length = draw(st.sampled_from([0, 0, 1, 1, 2, 3, 5, 8, 13, 40]))
            piece = draw(st.one_of(st.sampled_from(pieces), st.binary(max_size=4)))
            content = content[:start] + piece + content[start + length :]
    return content


_YAML = [
    b"", b"\n", b" ", b"\t", b":", b": ", b"- ", b"[", b"]", b"{", b"}", b",", b"#", b"&a ", b"*a",
    b"<<: ", b"<<: *a\n", b"? ", b"|", b">", b'"', b"'", b"\\", b"!!python/object:os.system ",
    b"!!binary ", b"!!int ", b"!!float ", b"!!timestamp ", b"!!set ", b"!!omap ", b"!!pairs ",
    b"!!bool ", b"2026-13-45", b"0x", b"0b", b"0o9", b"1:60:", b".nan", b".inf", b"-.inf", b"~",
    b"null", b"---\n", b"...\n", b"%YAML 1.1\n", b"%", b"@", b"`", b"\xff", b"\0", b"\xef\xbb\xbf",
    "\u2028".encode(), b"[" * 2000, b"- " * 2000, b"9" * 5000, b"&a [*a]", b"1e400", b"1.0e+400",
    b"0", b"-", b"9", b".", b"=", b"name: &a {<<: *a}\n", b"TODO",
    b"2026-01-31 00:00:00 +99:99",
]  # fmt: skip


# --- robots ------------------------------------------------------------------------------------

DESCRIPTION = yaml.safe_load(bundled_robot().read_text())
# Fields that the bundled description has no use for.
EXTENDED = DESCRIPTION | {
    "held": [],
    "passive": [],
    "controlled": [],
    "collisions": "all",
    "identified": {
        "motors.drive.rotor_inertia": {
            "value": 0.0002,
            "interval": [0.00019, 0.00021],
            "date": "2026-01-31",
            "sources": [{"file": "a.csv", "sha256": "0" * 64}],
            "method": "multisine",
        }
    },
}
SERIAL = (bundled_robot().parent / "serial.xml").read_bytes()


def robot_folder(description: bytes, serial: bytes = SERIAL) -> Path:
    """A folder with these two files, always the same one."""
    folder = Path("robot")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copyfile(bundled_robot().parent / "closed_chain.xml", folder / "closed_chain.xml")
    (folder / "serial.xml").write_bytes(serial)
    (folder / "robot.yaml").write_bytes(description)
    return folder / "robot.yaml"


def check_sound(robot: Robot | None) -> None:
    """What loaded is finite, and S3N can be put into it or says why not."""
    if robot is None:
        return
    for number in numbers(robot.description).values():
        assert math.isfinite(number)
    for field in dataclasses.fields(robot):
        value = getattr(robot, field.name)
        if isinstance(value, np.ndarray):
            assert np.isfinite(value).all(), field.name
    for name in ("body_mass", "body_inertia", "body_pos", "dof_armature", "jnt_axis", "jnt_range"):
        assert np.isfinite(getattr(robot.model, name)).all(), name
    for pair in robot.pairs:
        assert math.isfinite(pair.serial_link.magnitude)
    for variant in ("s3n_act", "s3n_full"):
        simulation = load_preset("pitch", "cpu").simulation
        simulation = dataclasses.replace(simulation, variant=variant)
        normalized = loads_or_says(lambda s=simulation: normalize(robot, s), "")
        if normalized is not None:
            assert math.isfinite(normalized.stability_margin)


@thorough
def test_descriptions_of_any_structure(times):
    def check(tree):
        path = robot_folder(yaml_text(tree))
        if loads_or_says(lambda: load_description(path), "robot.yaml") is not None:
            check_sound(loads_or_says(lambda: load_robot(path), "robot/"))

    fuzz(check, 120 * times, damaged(EXTENDED))


@thorough
def test_descriptions_of_any_bytes(times):
    def check(content):
        path = robot_folder(content)
        if loads_or_says(lambda: load_description(path), "robot.yaml") is not None:
            check_sound(loads_or_says(lambda: load_robot(path), "robot/"))

    fuzz(check, 120 * times, edited(bundled_robot().read_bytes(), _YAML))


_BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(8 * [f'*{before}'])}]\n"
    for before, name in itertools.pairwise("abcdefghijklm")
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nname: b\n", "key 'name' is there twice"),
        ("home: &a [*a]\n", "hold themselves"),
        (_BOMB, "aliases repeat too much"),
        (f"a: {'[' * 2000}", "nested too deeply"),
        ("a: !!int ''\n", "a value of another type"),
        ("a: 2026-13-45\n", "month must be in 1..12"),
    ],
)
def test_yaml_that_pyyaml_takes_or_trips_over(text, says):
    Path("robot.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        load_description(Path("robot.yaml"))


_MERGED = """
base: &base {joint: a, motor: m}
more: {<<: *base, motor: n}
"""


def test_merged_keys_may_be_overridden():
    Path("merged.yaml").write_text(_MERGED)
    assert read_yaml(Path("merged.yaml"))["more"] == {"joint": "a", "motor": "n"}


@pytest.mark.parametrize("key", ["model", "closed_chain"])
def test_a_name_that_no_file_can_have(key):
    path = robot_folder(yaml_text(DESCRIPTION | {key: "x" * 3000}))
    assert loads_or_says(lambda: load_robot(path), "robot/") is None


_XML = [
    b"", b"\n", b"<", b">", b"/>", b"</", b'"', b"'", b"&", b"&amp;", b"&#0;", b"<!--", b"-->",
    b"<![CDATA[", b"\xff", b"\0", b"nan", b"inf", b"1e400", b"1e300", b"-", b"0", b"9", b".",
    b" ", b"e", b"\xc3\xa9", b'name="trunk" ', b"<freejoint/>", b'<include file="serial.xml"/>',
    b'<include file="."/>', b'<joint axis="0 0 0"/>', b'<geom size="1"/>',
    b'<geom type="mesh" mesh="none"/>', b'<body/>', b'<inertial pos="0 0 0" mass="0"/>',
    b'<compiler angle="degree"/>', b'<default class="a"/>', b'<option gravity="nan 0 0"/>',
]  # fmt: skip
_XML_VALUES = st.one_of(
    st.sampled_from(
        [
            "", " ", "nan", "inf", "-inf", "1e400", "1e300", "-1e300", "0", "-1", "1e-300", "0 0 0",
            "1 2 3 4 5 6 7", "0 0 0 0", "abc", "x" * 3000, "Ω😀", "trunk", "FL_foot", "FL_knee",
            "home", "world", "free", "ball", "slide", "mesh", "plane", "hfield", "true", "false",
            "1e10", "1e20", "2147483648", "-5 5", "5 -5", "a\nb", "..", "/",
        ]
    ),
    st.floats().map(repr),
    st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=6),
)  # fmt: skip


_XML_NUMBERS = st.one_of(
    st.sampled_from(["0", "-0", "1", "-1", "1e-300", "1e-9", "1e9", "1e30", "1e150", "1e308"]),
    st.floats(-10.0, 10.0).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)  # fmt: skip
_XML_DEEDS = [*["number"] * 6, *["set"] * 3, "unset", "unset", "delete", "double", "move", "tag"]
_XML_ATTRIBUTES = {
    "body": "pos quat euler gravcomp mocap childclass",
    "joint": "pos axis type range armature damping stiffness ref springref frictionloss margin"
    " limited solreflimit actuatorfrcrange",
    "geom": "type size pos quat fromto mass density margin gap friction contype conaffinity condim"
    " priority solref solimp mesh fluidcoef",
    "inertial": "mass pos quat diaginertia fullinertia",
    "key": "qpos qvel ctrl time name",
    "option": "timestep gravity integrator iterations wind density impratio",
    "compiler": "angle boundmass settotalmass inertiafromgeom fusestatic eulerseq",
    "position": "kp kv gear ctrlrange forcerange joint armature damping",
    "motor": "gear ctrlrange forcerange joint tendon armature damping",
}
_TAGS = ["body", "joint", "geom", "site", "frame", "x", "key"]


@st.composite
def damaged_xml(draw) -> bytes:
    """The serial model with elements and attributes deleted, doubled, moved or set."""
    root = ElementTree.fromstring(SERIAL)
    for _ in range(draw(st.integers(1, 3))):
        places = [(parent, child) for parent in root.iter() for child in parent]
        if not places:
            break
        parent, child = places[draw(st.integers(0, len(places) - 1))]
        deed = draw(st.sampled_from(_XML_DEEDS))
        keys = sorted(child.attrib)
        if deed == "number" and keys:
            key = draw(st.sampled_from(keys))
            words = child.get(key).split() or [""]
            words[draw(st.integers(0, len(words) - 1))] = draw(_XML_NUMBERS)
            child.set(key, " ".join(words))
        elif deed == "set":
            names = [*keys, *keys, *_XML_ATTRIBUTES.get(child.tag, "class").split()]
            child.set(draw(st.sampled_from(names)), draw(st.one_of(_XML_VALUES, _XML_NUMBERS)))
        elif deed == "unset" and keys:
            del child.attrib[draw(st.sampled_from(keys))]
        elif deed == "delete":
            parent.remove(child)
        elif deed == "double":
            parent.append(child)
        elif deed == "move":
            parent.remove(child)
            others = list(root.iter())
            others[draw(st.integers(0, len(others) - 1))].append(child)
        elif deed == "tag":
            child.tag = draw(st.sampled_from(_TAGS))
    return ElementTree.tostring(root)


def check_model(content: bytes) -> None:
    path = robot_folder(bundled_robot().read_bytes(), content)
    check_sound(loads_or_says(lambda: load_robot(path), "robot/"))
    loads_or_says(lambda: survey(path.parent / "serial.xml"), "serial.xml")


@thorough
def test_models_of_any_bytes(times):
    def check(content):
        check_model(content)

    fuzz(check, 60 * times, edited(SERIAL, _XML))


@thorough
def test_models_of_any_structure(times):
    def check(content):
        check_model(content)

    fuzz(check, 60 * times, damaged_xml())


# --- configs, presets and flags ----------------------------------------------------------------


def check_finite(value: Any) -> None:
    """No NaN, infinity or number beyond use anywhere in a config."""
    if isinstance(value, dict):
        for child in value.values():
            check_finite(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            check_finite(child)
    elif isinstance(value, (int, float)):
        assert math.isfinite(value)
        assert abs(value) < 1e15


def check_config(config: RunConfig | None) -> None:
    if config is not None:
        assert type(config) in RUNS.values()
        check_finite(to_plain(config))
        assert math.isfinite(config.ppo.steps_per_iteration)
        assert math.isfinite(config.simulation.control_timestep_s)


def _full_config(task: str) -> dict[str, Any]:
    return {"task": task} | to_plain(load_preset(task, "cpu"))


@thorough
def test_run_configs(times):
    def check(content):
        Path("run").mkdir(exist_ok=True)
        (Path("run") / CONFIG_FILE).write_bytes(content)
        check_config(loads_or_says(lambda: load_config(Path("run")), f"run/{CONFIG_FILE}"))

    trees = st.one_of(*(damaged(_full_config(task)) for task in RUNS)).map(yaml_text)
    texts = edited(yaml_text(_full_config("circle")), _YAML)
    fuzz(check, 400 * times, st.one_of(trees, texts))


@thorough
def test_presets(times):
    def check(content, task):
        Path("mine.yaml").write_bytes(content)
        check_config(loads_or_says(lambda: load_preset(task, "mine.yaml"), "mine.yaml"))

    paper = (presets_folder() / "paper.yaml").read_bytes()
    trees = damaged(yaml.safe_load(paper)).map(yaml_text)
    fuzz(check, 300 * times, st.one_of(trees, edited(paper, _YAML)), st.sampled_from(list(RUNS)))


_FLAGS = st.sampled_from(
    [
        "--task", "--preset", "--run-dir", "--resume", "--tensorboard", "--no-tensorboard",
        "--wandb", "--robot", "--seed", "--leg-randomization", "--variant", "--injection",
        "--timing", "--timestep-s", "--substeps", "--num-envs", "--num_envs", "--learning-rate",
        "--desired-kl", "--policy-layers", "--discounting", "--num-timesteps",
        "--env.amplitude-rad",
        "--env.reward.contact", "--env.randomization.payload-kg", "--env.body.fall-tilt-rad",
        "--env.vx-range-m-s", "--link-gravity", "--no-link-gravity", "--num-envz", "--env", "--",
        "-", "-x", "--seed=1", "--preset=cpu", "--task=circle", "--num-envs=", "--=", "=",
        "--config.seed", "---", "@file", "--tyro-print-completion", "--tyro-write-completion",
    ]
)  # fmt: skip
_WORDS = st.one_of(
    st.sampled_from(
        [
            "", " ", "pitch", "circle", "cpu", "paper", "s3n_act", "none", "None", "nan", "inf",
            "-inf", "1e400", "-1", "0", "1", "3", "0.5", "1e3", "1e-400", "9" * 5000, "64 64",
            "a\nb",
            "True", "Ω😀", "mine.yaml", "/x.yaml", ".yaml", "x" * 3000, "\x1b[31m", "--help",
            "1_000",
            "0x10", "(1,2)", "[", "{}", "%s", "%", "│", "─", "{0}", "[red]", "[/red]",
        ]
    ),
    st.floats().map(str),
    st.integers().map(str),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
)  # fmt: skip


@thorough
def test_flags(times, capsys):
    def check(args):
        try:
            parsed = loads_or_says(lambda: train.parse(args), "")
        except SystemExit as stop:
            if stop.code:  # else help, or a shell's completion
                raise
        else:
            if parsed is not None:
                check_config(parsed[1])
        capsys.readouterr()

    pairs = st.tuples(_FLAGS, _WORDS)
    words = st.one_of(pairs, pairs, pairs, st.tuples(_FLAGS), st.tuples(_WORDS))
    command = st.lists(words, min_size=1, max_size=4).map(
        lambda groups: ["--preset", "cpu", *(word for group in groups for word in group)]
    )
    fuzz(check, 60 * times, command)


# --- measured logs -----------------------------------------------------------------------------

JOINTS, FEET = ("hip", "knee"), ("left", "right")
_CSV = [
    b"", b",", b"\n", b"\r", b'"', b"#", b":", b"\0", b"-", b"e", b"9", b"nan", b"inf", b"1e308",
    b"-1e308", b"1e400", b"# onset_s: 1e308\n", b"# onset_s: nan\n", b"\xff", b"\xef\xbb\xbf", b"/",
    b" ", b"5e-324", "\u2028".encode(), b"x" * 200_000, b'"' + b"x" * 140_000, b"_", b"0x1",
    b"# format: 2\n", b"# period_s: 1e308\n", b"# period_s: 1e-308\n", b"## \n", b"time_s,",
    "١".encode(),
]  # fmt: skip
_NUMBERS = st.one_of(
    st.sampled_from(
        [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308, -1e308, 5e-324, 1e-200, 1e20]
    ),
    st.floats(),
)


def _recording() -> Recording:
    time = 0.01 * np.arange(12)
    n, rng = time.size, np.random.default_rng(3)
    pitch, zero = 0.1 * np.sin(20.0 * time), np.zeros(n)
    position = np.stack([0.1 * time, zero, zero + 0.3], axis=1)
    quaternion = np.stack([np.cos(pitch / 2), zero, np.sin(pitch / 2), zero], axis=1)
    joints = rng.normal(size=(n, 2))
    return Recording(
        joint_names=JOINTS,
        foot_names=FEET,
        time=time,
        joint_position=joints,
        joint_velocity=rng.normal(size=(n, 2)),
        motor_torque=rng.normal(size=(n, 2)),
        base_position=position,
        base_quaternion=quaternion,
        base_linear_velocity=rng.normal(size=(n, 3)),
        base_angular_velocity=np.stack([zero, 2.0 * np.cos(20.0 * time), zero], axis=1),
        foot_force=np.full((n, 2, 3), 20.0),
        qpos=np.concatenate([position, quaternion, joints], axis=1),
        command={"pitch_rad": pitch},
        meta={"frequency_hz": 5.0},
    )


def _torque_log() -> TorqueLog:
    multisine = Multisine(
        low_hz=5.0,
        high_hz=40.0,
        amplitude_nm=2.0,
        period_s=0.2,
        periods=2,
        rate_hz=100.0,
        odd=False,
    )
    signal = multisine.signal()
    torque = np.stack([signal, np.roll(signal, 3)], axis=1)
    velocity = np.cumsum(torque, axis=0) * 0.1
    return TorqueLog(
        path=Path("bench"),
        motors=("hip", "knee"),
        time=multisine.times(),
        torque=torque,
        position=np.cumsum(velocity, axis=0) / multisine.rate_hz,
        velocity=velocity,
        period_s=0.2,
        low_hz=5.0,
        high_hz=40.0,
        torque_limit=30.0,
    )


def _tables(path: Path) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    columns = {k: v for k, v in content.items() if v.ndim}
    return columns, {k.removeprefix("meta/"): float(v) for k, v in content.items() if not v.ndim}


_TABLE_DEEDS = ["cell", "drop", "name", "order", "row", "column", "meta", "key"]


@st.composite
def damaged_table(draw, columns: dict[str, np.ndarray], meta: dict[str, float]):
    """Columns and metadata with some dropped, doubled, moved, or with other numbers in them."""
    columns, meta = {k: v.copy() for k, v in columns.items()}, dict(meta)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(columns)))
        deed = draw(st.sampled_from(_TABLE_DEEDS))
        column = columns[name]
        at = draw(st.integers(0, max(0, column.size - 1)))
        if deed == "cell" and column.size:
            column[at] = draw(_NUMBERS)
        elif deed == "drop" and len(columns) > 1:
            del columns[name]
        elif deed == "name":
            columns[
                draw(st.sampled_from(["", " ", "x", "time_s", name + "_", "Ω", "command/"]))
            ] = column
        elif deed == "order":
            columns = dict(reversed(columns.items()))
        elif deed == "row":
            rows = draw(st.sampled_from([slice(0), slice(1), slice(2), slice(None, None, -1)]))
            columns = {k: v[rows].copy() for k, v in columns.items()}
        elif deed == "column":
            with np.errstate(all="ignore"):
                columns[name] = column * draw(_NUMBERS)
        elif deed == "meta" and meta:
            meta[draw(st.sampled_from(sorted(meta)))] = draw(_NUMBERS)
        elif deed == "key" and meta:
            meta.pop(draw(st.sampled_from(sorted(meta))))
    return columns, meta


def _log_contents(good: Path, suffix: str) -> st.SearchStrategy[bytes]:
    columns, meta = _tables(good.with_suffix(".npz"))

    def written(table) -> bytes:
        path = Path(f"written{suffix}")
        with np.errstate(all="ignore"):
            write_table(path, *table)
        content = path.read_bytes()
        path.unlink()
        return content

    tables = damaged_table(columns, meta).map(written)
    return st.one_of(tables, edited(good.with_suffix(suffix).read_bytes(), _CSV))


def check_log(path: Path) -> None:
    recording = loads_or_says(
        lambda: read_log(path, JOINTS, FEET, torque_limit=[12.0, 20.0]), path.name
    )
    if recording is None:
        return
    assert (np.diff(recording.time) > 0).all()
    for name in ("time", "joint_position"):
        assert np.isfinite(getattr(recording, name)).all()
    for name in Recording.array_names():
        assert not np.isinf(getattr(recording, name)).any()
    assert all(map(math.isfinite, recording.meta.values()))


def check_torque_log(path: Path) -> None:
    log = loads_or_says(lambda: read_torque_log(path), path.name)
    if log is None:
        return
    for name in ("time", "torque", "velocity"):
        assert np.isfinite(getattr(log, name)).all()
    record = loads_or_says(lambda: record_of(log, range(len(log.motors))), path.name)
    if record is not None:
        for spectrum in (record.velocity, record.torque):
            assert np.isfinite(spectrum.mean).all()
            assert np.isfinite(spectrum.variance).all()


_READERS = [
    (lambda path: write_log(_recording(), path), check_log),
    (lambda path: write_torque_log(_torque_log(), path), check_torque_log),
]


@thorough
@pytest.mark.parametrize("suffix", [".csv", ".npz"])
@pytest.mark.parametrize(("write", "read"), _READERS, ids=["trial", "bench"])
def test_logs(write, read, suffix, times):
    good = Path("good")
    for each in (".csv", ".npz"):
        write(good.with_suffix(each))
        read(good.with_suffix(each))

    def check(content):
        path = Path(f"log{suffix}")
        path.write_bytes(content)
        read(path)

    fuzz(check, 250 * times, _log_contents(good, suffix))


@thorough
def test_recordings(times):
    good = _recording().save(Path("good_recording.npz")).read_bytes()

    def check(content):
        Path("recording.npz").write_bytes(content)
        loads_or_says(lambda: Recording.load("recording.npz"), "recording.npz")

    fuzz(check, 100 * times, edited(good, _CSV))


# --- checkpoints -------------------------------------------------------------------------------

OBSERVATION, ACTION = 53, 12


@pytest.fixture(scope="module")
def checkpoint(work, robot):
    """A checkpoint of small networks before any training, and the shape of its parameters."""
    base = load_preset("pitch", "cpu")
    ppo = dataclasses.replace(base.ppo, policy_layers=(4,), value_layers=(4,))
    config = dataclasses.replace(base, ppo=ppo)
    params = initial_params(ppo, OBSERVATION, ACTION)
    folder = checkpoints.save(
        Path("good_checkpoint"), 1, config, normalize(robot, config.simulation), params
    )
    return folder, params


def copied(checkpoint: Path) -> Path:
    folder = Path("checkpoint")
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(checkpoint, folder))


def check_params(params: Any, template: Any) -> None:
    for leaf, wanted in zip(jax.tree.leaves(params), jax.tree.leaves(template), strict=True):
        assert leaf.shape == wanted.shape
        assert leaf.dtype == wanted.dtype
        assert np.isfinite(leaf).all()


def check_checkpoint(folder: Path, template: Any) -> None:
    loaded = loads_or_says(lambda: checkpoints.load(folder), "checkpoint")
    if loaded is None:
        return
    assert isinstance(loaded.env_steps, int)
    assert loaded.env_steps >= 0
    check_config(loaded.config)
    params = loads_or_says(lambda: checkpoints.restore_params(loaded, template), "checkpoint")
    if params is not None:
        check_params(params, template)


@thorough
def test_checkpoints_of_any_metadata(checkpoint, times):
    good, template = checkpoint
    meta = yaml.safe_load((good / "checkpoint.yaml").read_text())
    # S3N's own numbers are there for a reader; damage goes where it is read.
    short = {key: value for key, value in meta.items() if key not in ("s3n", "config")}
    folder = copied(good)

    def check(content):
        (folder / "checkpoint.yaml").write_bytes(content)
        check_checkpoint(folder, template)

    whole = {key: value for key, value in meta.items() if key != "s3n"}
    trees = st.one_of(
        damaged(short).map(lambda tree: {"config": meta["config"]} | tree), damaged(whole)
    )
    texts = edited(yaml_text(whole), _YAML)
    fuzz(check, 100 * times, st.one_of(trees.map(yaml_text), texts))


@thorough
def test_checkpoints_with_any_file_damaged(checkpoint, times):
    good, template = checkpoint
    names = [f.relative_to(good).as_posix() for f in sorted(good.rglob("*")) if f.is_file()]
    contents = {name: (good / name).read_bytes() for name in names}
    folder = copied(good)

    def check(name, content):
        path = folder / name
        path.unlink()
        if content is None:
            path.mkdir()
        elif content is not ...:
            path.write_bytes(content)
        try:
            check_checkpoint(folder, template)
        finally:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(contents[name])

    damage = st.sampled_from(names).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.one_of(
                edited(contents[name], [b"", b"\0", b"\xff", b"\n"]),
                st.sampled_from([None, ..., b""]),
            ),
        )
    )
    fuzz(lambda pair: check(*pair), 40 * times, damage)


_MSGPACK = [
    b"", b"\0", b"\xff", b"\xc0", b"\xc1", b"\x80", b"\x90", b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc7\x00\x01", b"\xc9\xff\xff\xff\xff\x01",
    b"\xd4\x01\x00", b"float32", b"float64", b"object", b"bfloat16", b"\xcb\x7f\xf8" + 6 * b"\0",
    b"\x91" * 2000, b"\xa6kernel", b"\xa4bias",
]  # fmt: skip
_LEAVES = st.one_of(
    st.sampled_from(
        [
            None, True, 3, 1.5, "text", b"bytes", [], {}, math.nan, 2**70, complex(1, 2),
            np.zeros(4), np.zeros((4, 12), np.int32), np.full(24, np.nan, np.float32),
            np.array("abc"), np.zeros(0), np.float32(math.inf), np.zeros((53, 4), np.complex64),
        ]
    )
)  # fmt: skip


@st.composite
def damaged_params(draw, tree: Any) -> bytes:
    """Parameters as flax writes them, with other leaves, keys or numbers, or with other bytes."""
    tree = jax.tree.map(np.array, tree)
    for _ in range(draw(st.integers(1, 2))):
        slots = _slots(tree, [])
        holder, key = slots[draw(st.integers(0, len(slots) - 1))]
        deed = draw(st.sampled_from(["leaf", "delete", "rename", "nan", "type", "reshape"]))
        value = holder[key]
        if deed == "leaf":
            holder[key] = copy.deepcopy(draw(_LEAVES))
        elif deed == "delete":
            del holder[key]
        elif deed == "rename":
            holder[draw(st.sampled_from(["", "x", "kernel", "bias", "0"]))] = holder.pop(key)
        elif isinstance(value, np.ndarray) and value.size and value.dtype == np.float32:
            if deed == "nan":
                value.flat[draw(st.integers(0, value.size - 1))] = draw(
                    st.sampled_from([math.nan, math.inf])
                )
            elif deed == "type":
                holder[key] = value.astype(
                    draw(st.sampled_from(["float64", "int8", "float16", "?"]))
                )
            else:
                holder[key] = value.reshape(-1)
        if not tree:
            break
    with contextlib.suppress(TypeError, OverflowError):  # msgpack cannot hold it
        return flax.serialization.msgpack_serialize(tree)
    return b""


@thorough
def test_parameters_of_any_kind(checkpoint, times):
    """Hashes agree, so that nothing but decoding can tell."""
    good, template = checkpoint
    loaded = checkpoints.load(good)
    state = flax.serialization.msgpack_restore(loaded.params)

    def check(content):
        changed = dataclasses.replace(loaded, params=content)
        params = loads_or_says(
            lambda: checkpoints.restore_params(changed, template), "good_checkpoint"
        )
        if params is not None:
            check_params(params, template)

    contents = st.one_of(damaged_params(state), edited(loaded.params, _MSGPACK))
    fuzz(check, 250 * times, contents)


def test_parameters_of_another_network_are_refused_from_the_folder(checkpoint):
    """The same through files, with the hash set right."""
    good, _ = checkpoint
    folder = copied(good)
    content = (folder / "params.msgpack").read_bytes()[:-3]
    (folder / "params.msgpack").write_bytes(content)
    meta = yaml.safe_load((folder / "checkpoint.yaml").read_text())
    meta["params_sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "checkpoint.yaml").write_text(yaml.safe_dump(meta))
    loaded = checkpoints.load(folder)
    with pytest.raises(UserError, match="do not fit"):
        load_params(loaded, OBSERVATION, ACTION)


# --- training curves ---------------------------------------------------------------------------


@thorough
def test_training_curves(times):
    row = {"env_steps": 80, "wall_s": 1.5, "eval/episode_reward": 3.25}
    good = "".join(json.dumps(row | {"env_steps": 80 * i}) + "\n" for i in range(4)).encode()

    def check(content):
        Path("metrics.jsonl").write_bytes(content)
        rows = loads_or_says(lambda: read_rows(Path("metrics.jsonl")), "metrics.jsonl")
        if rows is not None:
            for row in rows:
                assert math.isfinite(row["env_steps"])
                assert math.isfinite(row["wall_s"])
                assert all(isinstance(value, (int, float)) for value in row.values())
            MetricsFile(Path("metrics.jsonl"), 160).close()

    pieces = [
        *_CSV,
        b"{",
        b"}",
        b"[",
        b"]",
        b"null",
        b"NaN",
        b"Infinity",
        b"9" * 5000,
        b"[" * 99_999,
    ]
    lines = damaged([row] * 4).map(
        lambda tree: "".join(
            json.dumps(row, default=str, skipkeys=True) + "\n" for row in tree
        ).encode()
    )
    fuzz(check, 300 * times, st.one_of(edited(good, pieces), lines))

"""A checkpoint's robot needs nothing but its folder: includes, meshes, textures come along."""

import os
import shutil
import struct

import mujoco
import numpy as np
import pytest
import yaml
from test_draft import answered
from test_survey import SHARED, needs_robots

from s3n_mjx.errors import UserError
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.draft import draft
from s3n_mjx.robot.model import load_robot, load_spec
from s3n_mjx.robot.packing import check_packable
from s3n_mjx.robot.survey import survey
from s3n_mjx.training import checkpoint

TETRAHEDRON = [(0, 0, 0), (0.1, 0, 0), (0, 0.1, 0), (0, 0, 0.1)]


def stl() -> bytes:
    """A tetrahedron as binary STL."""
    faces = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    data = bytes(80) + struct.pack("<I", len(faces))
    for face in faces:
        data += struct.pack("<12fH", 0, 0, 0, *(x for i in face for x in TETRAHEDRON[i]), 0)
    return data


@pytest.fixture
def scattered(tmp_path):
    """The bundled robot behind an include, with a mesh beside its folder's parent."""
    source = tmp_path / "source"
    for folder in ("models/robot", "shapes"):
        (source / folder).mkdir(parents=True)
    (source / "shapes" / "tip.stl").write_bytes(stl())
    text = (bundled_robot().parent / "serial.xml").read_text()
    text = text.replace(
        "<worldbody>", '<asset><mesh name="tip" file="tip.stl"/></asset><worldbody>'
    )
    text = text.replace("<compiler ", '<compiler meshdir="../../shapes" ', 1)
    geom = '<geom name="hat" type="mesh" mesh="tip" contype="0" conaffinity="0" mass="0"/>'
    start = text.index(">", text.index('<body name="trunk"')) + 1
    (source / "models" / "robot" / "body.xml").write_text(text[:start] + geom + text[start:])
    scene = source / "models" / "robot" / "scene.xml"
    scene.write_text('<mujoco><include file="body.xml"/></mujoco>')
    description = yaml.safe_load(bundled_robot().read_text())
    description["model"] = "scene.xml"
    del description["closed_chain"]
    (scene.parent / "robot.yaml").write_text(yaml.safe_dump(description))
    return scene.parent


def test_includes_and_meshes_come_along(scattered, tmp_path):
    robot = load_robot(scattered)
    copy = tmp_path / "copy"
    hashes = checkpoint.save_robot(robot, copy)
    assert any(name.endswith("tip.stl") for name in hashes)
    assert any(name.endswith("body.xml") for name in hashes)
    shutil.rmtree(tmp_path / "source")
    again = load_robot(copy)
    for name in ("body_mass", "body_inertia", "geom_pos", "mesh_vert", "key_qpos"):
        np.testing.assert_array_equal(getattr(again.model, name), getattr(robot.model, name))


def test_an_absolute_path_is_refused_before_training(scattered):
    body = scattered / "body.xml"
    body.write_text(body.read_text().replace("../../shapes", str(scattered.parents[1] / "shapes")))
    robot = load_robot(scattered)
    with pytest.raises(UserError, match=r"body\.xml: names .*shapes by an absolute path") as caught:
        checkpoint.check_saveable(robot)
    assert "\n" not in str(caught.value)


def test_bundled_robot_is_packable():
    for name in ("serial.xml", "closed_chain.xml"):
        check_packable(bundled_robot().parent / name)


def test_large_files_are_stored_once(tmp_path):
    earlier, later = tmp_path / "1", tmp_path / "2"
    for folder in (earlier, later):
        (folder / "robot").mkdir(parents=True)
        (folder / "robot" / "big").write_bytes(b"x" * 100_000)
        (folder / "robot" / "small").write_bytes(b"x")
    sha256 = {
        name: checkpoint._sha256((later / "robot" / name).read_bytes()) for name in ("big", "small")
    }
    checkpoint._share(later / "robot", sha256, earlier)
    assert os.path.samefile(later / "robot" / "big", earlier / "robot" / "big")
    assert not os.path.samefile(later / "robot" / "small", earlier / "robot" / "small")
    (earlier / "robot" / "big").unlink()
    assert (later / "robot" / "big").read_bytes() == b"x" * 100_000


@needs_robots
def test_a_public_robot_with_meshes(tmp_path):
    path = tmp_path / "robot.yaml"
    seen = survey(SHARED / "aliengo" / "scene_flat.xml")
    answers = {
        "linkages": "{}",
        "torque_delay_ms": 0.0,
        "kp": 30.0,
        "kd": 1.0,
        "collisions": "feet",
    }
    path.write_text(answered(draft(seen, path), **answers))
    robot = load_robot(path)
    checkpoint.save_robot(robot, tmp_path / "copy")
    again = load_robot(tmp_path / "copy")
    assert isinstance(load_spec(again.path.parent / again.description.model), mujoco.MjSpec)
    np.testing.assert_array_equal(again.model.mesh_vert, robot.model.mesh_vert)

"""Where the geoms of a posed robot are."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray


def mass_matrix(model: mujoco.MjModel, data: mujoco.MjData) -> NDArray[np.float64]:
    """Mass matrix (nv, nv) at ``data.qpos``, armature included.

    It is not factored, as `mj_forward` does, which warns of one that is singular.
    """
    for step in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_tendon, mujoco.mj_makeM):
        step(model, data)
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full


def lowest_point(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """Height of a geom's lowest point in m; of its bounding box, where it is neither sphere nor
    capsule."""
    position, rotation = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)
    size, kind = model.geom_size[geom], mujoco.mjtGeom(model.geom_type[geom])
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return float(position[2] - size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return float(position[2] - abs(rotation[2, 2]) * size[1] - size[0])
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start = model.mesh_vertadr[mesh]
        vertices = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
        return float(position[2] + (vertices @ rotation[2]).min())
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return float(position[2] + rotation[2] @ centre - np.abs(rotation[2]) @ half)

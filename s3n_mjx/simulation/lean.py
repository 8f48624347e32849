"""The tree without what physics never looks at: geoms that are there to be seen.

MJX places every geom of a model at every step. A robot's visuals are many (53 of the bundled
one's 69 geoms), and XLA cannot know that no one asks for them.
"""

from __future__ import annotations

from collections.abc import Collection

import mujoco
import numpy as np


def without_visuals(
    spec: mujoco.MjSpec, model: mujoco.MjModel, keep: Collection[str]
) -> mujoco.MjSpec:
    """A copy of ``spec`` without geoms that can touch nothing, and that moves like it.

    Args:
        spec: every body with a name of its own.
        model: ``spec``, compiled. Inertias are taken from there, since they may have been those
            of geoms.
        keep: names of geoms that are needed in any case.

    Returns:
        The copy; `spec` itself where something other than contact needs the geoms.
    """
    lean = spec.copy()
    lean.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    lean.compiler.settotalmass = -1
    lean.compiler.balanceinertia = False
    for body in lean.bodies:
        if body.name == "world":
            continue
        index = model.body(body.name).id
        body.explicitinertial = True
        body.mass = model.body_mass[index]
        body.inertia = model.body_inertia[index]
        body.ipos = model.body_ipos[index]
        body.iquat = model.body_iquat[index]
        body.fullinertia = np.full(6, np.nan)
    paired = {name for pair in lean.pairs for name in (pair.geomname1, pair.geomname2)}
    for geom in list(lean.geoms):
        if not (geom.contype or geom.conaffinity or geom.name in paired or geom.name in keep):
            lean.delete(geom)
    return lean if _moves_alike(lean, model) else spec


def _moves_alike(lean: mujoco.MjSpec, model: mujoco.MjModel) -> bool:
    try:
        compiled = lean.copy().compile()
    except ValueError:  # a sensor of a geom, for one
        return False
    return all(
        np.allclose(getattr(compiled, name), getattr(model, name), rtol=1e-9, atol=1e-12)
        if getattr(compiled, name).shape == getattr(model, name).shape
        else False
        for name in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_pos", "qpos0")
    )

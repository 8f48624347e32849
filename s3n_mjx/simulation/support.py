"""What MJX makes of a model: which geoms it cannot collide, how many contacts it will compute."""

from __future__ import annotations

import itertools

import mujoco

from s3n_mjx import compat  # noqa: F401 - before mjx

from mujoco import mjx  # isort: skip
from mujoco.mjx._src import collision_driver  # not exported by mjx 3.17  # isort: skip

# Four feet and a box of a trunk make 12; each contact is four constraint rows and more.
MANY_CONTACTS = 24


def impossible_collisions(model: mujoco.MjModel) -> tuple[str, ...]:
    """Pairs of geoms that may touch and that MJX cannot collide, a phrase for each two types."""
    refused: dict[tuple[str, str], list[str]] = {}
    for first, second, _ in collision_driver.geom_pairs(model):
        types = model.geom_type[first], model.geom_type[second]
        if not collision_driver.has_collision_fn(*types):
            kinds = tuple(mujoco.mjtGeom(t).name.removeprefix("mjGEOM_").lower() for t in types)
            both = f"{model.geom(first).name} and {model.geom(second).name}"
            refused.setdefault((kinds[0], kinds[1]), []).append(both)
    return tuple(
        f"no collision of {first} with {second} ({len(pairs)} pair{'s' if pairs[1:] else ''}: "
        + ", ".join(itertools.islice(pairs, 3))
        + (", ...)" if len(pairs) > 3 else ")")
        for (first, second), pairs in refused.items()
    )


def contact_count(model: mujoco.MjModel) -> int:
    """Contacts that MJX computes in every environment at every step; of a model that it takes."""
    return len(collision_driver.make_condim(model))


def constraint_rows(model: mujoco.MjModel) -> int:
    """Rows of the solver's problem in an environment: contacts, limits, friction, equalities.

    What a step costs beside the tree's dynamics grows with them.
    """
    return int(mjx.make_data(model, impl="jax")._impl.efc_J.shape[0])  # type: ignore[union-attr]

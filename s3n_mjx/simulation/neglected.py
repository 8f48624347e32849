"""What the omitted links do beyond the paper's terms, each off by default.

- `SimulationConfig.velocity_terms`: Coriolis and centrifugal torque.
- `SimulationConfig.link_gravity`: weight.
- `SimulationConfig.base_coupling`: their reaction on everything that carries the pair. The
  paper's increment is relative to the leg's root, as if that stood still; on a moving trunk the
  linkage turns with it, and its inertia counts in absolute angles.

With the first two and a vanishing time step the serial leg moves like the closed chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx
from mujoco.mjx._src.math import axis_angle_to_quat, quat_mul, rotate  # not exported by MJX 3.17
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import link_increment
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.injection import increment_of


def _pair_torques(robot: Robot, torque: jax.Array) -> jax.Array:
    """(2, n_pairs), proximal and distal, as (nu,)."""
    index = np.array([[p.proximal for p in robot.pairs], [p.distal for p in robot.pairs]])
    return jnp.zeros(len(robot.joints)).at[index].set(torque)


@dataclass(frozen=True, eq=False)
class VelocityTerms:
    """Coriolis and centrifugal torque of an inertia increment that varies with alpha.

    ``dM(alpha)`` alone, without ``dM'(alpha)``, would not conserve energy. With alpha = q2 plus a
    constant the torque on the joints is ``-(dM' qd qd2 - [0, qd^T dM' qd / 2])``; for the
    parallelogram in absolute angles that is ``-dC sin(alpha) thd2^2``, ``+dC sin(alpha) thd1^2``.
    """

    robot: Robot
    cosine: NDArray[np.float32]  # (2, 2, n_pairs) kg m^2
    sine: NDArray[np.float32]

    @classmethod
    def of(cls, robot: Robot, config: SimulationConfig) -> VelocityTerms:
        """For what ``config.variant`` adds."""
        increments = [increment_of(robot, p, config.variant).inertia for p in robot.pairs]
        return cls(
            robot,
            np.stack([i.cosine for i in increments], axis=-1).astype(np.float32),
            np.stack([i.sine for i in increments], axis=-1).astype(np.float32),
        )

    def torque(self, position: jax.Array, velocity: jax.Array) -> jax.Array:
        """On the actuated joints, (nu,) N m."""
        distal = np.array([p.distal for p in self.robot.pairs])
        proximal = np.array([p.proximal for p in self.robot.pairs])
        alpha, first, second = position[distal], velocity[proximal], velocity[distal]
        slope = self.sine * jnp.cos(alpha) - self.cosine * jnp.sin(alpha)  # dM'
        momentum = [slope[i, 0] * first + slope[i, 1] * second for i in range(2)]
        energy = 0.5 * (first * momentum[0] + second * momentum[1])
        torque = -jnp.stack([momentum[0] * second, momentum[1] * second - energy])
        return _pair_torques(self.robot, torque)


@dataclass(frozen=True, eq=False)
class _Hinge:
    """What turns a body: its rest orientation in the parent, and a hinge, if there is one."""

    rest: NDArray[np.float64]  # (4,)
    axis: NDArray[np.float64] | None  # (3,) in the body
    address: int  # in qpos
    reference: float  # rad


class _OmittedLinks:
    """Geometry of the omitted links, constant in the body that the proximal joint turns.

    Raises:
        UserError: a linkage lacks `omitted_moment`.
    """

    def __init__(self, robot: Robot, flag: str):
        self.robot = robot
        names = {leg.name: leg.pair.linkage for leg in robot.description.legs if leg.pair}
        self.pairs = []
        for pair in robot.pairs:
            linkage = robot.description.linkages[names[pair.leg]]
            if linkage.omitted_moment is None:
                raise UserError(
                    f"{robot.path}: leg {pair.leg}: {flag} needs `omitted_moment` of its linkage,"
                    f" [proximal, distal] in kg m; add it or leave {flag} out"
                )
            proximal = robot.model.joint(robot.joints[pair.proximal])
            distal = robot.model.joint(robot.joints[pair.distal])
            self.pairs.append((pair, linkage, *_directions(robot.model, proximal, distal)))


def _directions(model: mujoco.MjModel, proximal, distal):
    """Both axes and the direction of the proximal link in the body that the latter turns."""
    data = mujoco.MjData(model)
    data.qpos[:] = model.qpos0
    mujoco.mj_kinematics(model, data)
    into = data.xmat[model.jnt_bodyid[proximal.id]].reshape(3, 3).T
    first, second = into @ data.xaxis[proximal.id], into @ data.xaxis[distal.id]
    along = into @ (data.xanchor[distal.id] - data.xanchor[proximal.id])
    along -= first * (first @ along)
    return first, second, along / np.linalg.norm(along)


def _outer(second: NDArray, along: NDArray, alpha: jax.Array) -> jax.Array:
    """Direction of the distal link: ``along`` turned by alpha about the distal axis."""
    return jnp.asarray(along) * jnp.cos(alpha) + np.cross(second, along) * jnp.sin(alpha)


class LinkGravity:
    """Weight of the omitted links, by their first moments along both links of each pair.

    The description's `omitted_moment` gives them in kg m: of what the tree carries rigidly in
    the body above the pair, but the real linkage moves. Directions are those of the serial
    links: from proximal to distal axis, and that direction turned by alpha about the distal axis.
    """

    def __init__(self, robot: Robot):
        self.robot = robot
        model = robot.model
        self._gravity = model.opt.gravity.astype(np.float32)
        self._pairs = [
            (
                pair,
                linkage,
                self._chain(
                    model, int(model.jnt_bodyid[model.joint(robot.joints[pair.proximal]).id])
                ),
                *directions,
            )
            for pair, linkage, *directions in _OmittedLinks(robot, "--link-gravity").pairs
        ]

    @staticmethod
    def _chain(model: mujoco.MjModel, body: int) -> list[_Hinge]:
        """From the world, or the floating trunk, outwards."""
        chain: list[_Hinge] = []
        while body:
            axis, address, reference = None, 0, 0.0
            first = model.body_jntadr[body]
            if model.body_jntnum[body]:
                if model.jnt_type[first] == mujoco.mjtJoint.mjJNT_FREE:
                    break
                if (
                    model.body_jntnum[body] > 1
                    or model.jnt_type[first] != mujoco.mjtJoint.mjJNT_HINGE
                ):
                    raise UserError(
                        f"--link-gravity: body {model.body(body).name!r} above a pair has other"
                        " joints than one hinge; give each joint a body of its own"
                    )
                address = int(model.jnt_qposadr[first])
                axis, reference = model.jnt_axis[first], float(model.qpos0[address])
            chain.append(_Hinge(model.body_quat[body], axis, address, reference))
            body = int(model.body_parentid[body])
        return chain[::-1]

    def torque(self, qpos: jax.Array) -> jax.Array:
        """On the actuated joints, (nu,) N m.

        Args:
            qpos: whole configuration, (nq,).
        """
        floating = self.robot.model.nv > len(self.robot.joints)
        columns = []
        for pair, linkage, chain, first, second, along in self._pairs:
            turn = qpos[3:7] if floating else jnp.array([1.0, 0.0, 0.0, 0.0])
            for hinge in chain:
                turn = quat_mul(turn, jnp.asarray(hinge.rest, jnp.float32))
                if hinge.axis is not None:
                    angle = qpos[hinge.address] - hinge.reference
                    turn = quat_mul(turn, axis_angle_to_quat(jnp.asarray(hinge.axis), angle))
            # Gravity seen from the proximal link, where everything else is constant.
            weight = rotate(self._gravity, turn * jnp.array([1.0, -1.0, -1.0, -1.0]))
            alpha = qpos[self.robot.qpos_index[pair.distal]] + linkage.angle_offset
            outer = _outer(second, along, alpha)
            inner_moment, outer_moment = linkage.omitted_moment
            upper = inner_moment * jnp.dot(jnp.cross(first, along), weight)
            lower = outer_moment * jnp.cross(jnp.stack([first, second]), outer[None]) @ weight
            columns.append(jnp.stack([upper + lower[0], lower[1]]))
        return _pair_torques(self.robot, jnp.stack(columns, axis=1))


class BaseCoupling:
    """Momentum of the omitted links when a pair moves, felt by all that carries the pair.

    Per unit of proximal and distal velocity: angular momentum about the proximal axis, the first
    row of ``dM_link(alpha)``, and linear momentum, from the first moments. Only with the
    mass-matrix injection, where it enters between the pair and its ancestors.

    Raises:
        UserError: a linkage lacks `omitted_moment` or its identified inertia.
    """

    def __init__(self, robot: Robot):
        self._robot = robot
        self._pairs = []
        model = robot.model
        for pair, linkage, first, second, along in _OmittedLinks(robot, "--base-coupling").pairs:
            if pair.total is None:
                raise UserError(
                    f"{robot.path}: leg {pair.leg}: --base-coupling needs the identified"
                    " `inertia` of its linkage"
                )
            both = [pair.proximal, pair.distal]
            increment = link_increment(
                pair.jacobian, pair.total, robot.motor_inertia[both], pair.serial_link
            )
            joint = model.joint(robot.joints[pair.proximal]).id
            self._pairs.append((pair, linkage, increment, joint, first, second, along))
        # Entries of the pairs among themselves are the increment's own affair.
        self.mask = np.ones((model.nv, model.nv), np.float32)
        for pair in robot.pairs:
            dofs = robot.dof_index[[pair.proximal, pair.distal]]
            self.mask[np.ix_(dofs, dofs)] = 0.0

    def momentum(self, model: mjx.Model, data: mjx.Data) -> jax.Array:
        """Spatial momentum (nv, 6) per unit velocity of each degree of freedom.

        As MuJoCo's `cdof`: world axes, angular part first and about the tree's centre of mass.

        Args:
            model: the tree.
            data: after `mjx.com_pos`.
        """
        rows = jnp.zeros((model.nv, 6))
        for pair, linkage, increment, joint, first, second, along in self._pairs:
            body = int(model.jnt_bodyid[joint])
            turn, anchor = data.xmat[body], data.xanchor[joint]
            centre = data.subtree_com[model.body_rootid[body]]
            alpha = data.qpos[self._robot.qpos_index[pair.distal]]
            inertia = (
                increment.constant[0]
                + increment.cosine[0] * jnp.cos(alpha)
                + increment.sine[0] * jnp.sin(alpha)
            )
            inner_moment, outer_moment = linkage.omitted_moment
            lower = outer_moment * _outer(second, along, alpha + linkage.angle_offset)
            velocities = jnp.cross(first, inner_moment * along + lower), jnp.cross(second, lower)
            for index, share, velocity in zip(
                (pair.proximal, pair.distal), inertia, velocities, strict=True
            ):
                linear = turn @ velocity
                angular = turn @ (first * share) + jnp.cross(anchor - centre, linear)
                row = jnp.concatenate([angular, linear])
                rows = rows.at[self._robot.dof_index[index]].set(row)
        return rows

"""S3N as maths, against the paper's printed numbers and against algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3n_mjx.normalization import (
    HarmonicMatrix,
    Injection,
    LaggedTerms,
    Variant,
    actuator_increment,
    link_increment,
    pair_increment,
    parallel_inertia,
    spectral_radius,
    split_increment,
)

J = np.array([[1.0, 0.0], [1.0, 1.0]])  # Eq. 2
MA = np.array([0.0162, 0.0162])  # Table I
DA = np.array([0.0972, 0.0972])
M_P = parallel_inertia(0.04793, 0.005413, 0.02368)  # Eq. 31
# The CAD leg behind Table II: in absolute angles diag(0.02206, 0.00232), coupling 0.003675.
SERIAL_LINK = parallel_inertia(0.02206, 0.003675, 0.00232).pull_back(J)
# An angle of 90 deg makes the coupling vanish on either side.
TABLE_II = {
    Variant.KIN_ONLY: (0.04058, 0.00232, 0.01852),
    Variant.S3N_ACT: (0.05678, 0.01852, 0.01852),
    Variant.S3N_FULL: (0.07161, 0.02368, 0.02368),
}

finite = st.floats(-2.0, 2.0)
positive = st.floats(1e-3, 1.0)
jacobians = (
    st.tuples(finite, finite, finite, finite)
    .map(lambda x: np.array(x).reshape(2, 2))
    .filter(lambda j: abs(j[0, 0] * j[1, 1] - j[0, 1] * j[1, 0]) > 0.1)
)
symmetric = st.tuples(finite, finite, finite).map(lambda x: np.array([[x[0], x[1]], [x[1], x[2]]]))
harmonics = st.tuples(symmetric, symmetric, symmetric).map(lambda x: HarmonicMatrix(*x))


def test_actuator_increment_is_the_papers():
    np.testing.assert_allclose(actuator_increment(J, MA), 0.0162 * np.array([[1, 1], [1, 0]]))
    np.testing.assert_allclose(actuator_increment(J, DA), 0.0972 * np.array([[1, 1], [1, 0]]))


def test_link_inertia_is_equation_33():
    link = M_P - HarmonicMatrix.of_constant(np.diag(MA))
    alpha = 0.7
    expected = [
        [0.03173, 0.005413 * np.cos(alpha)],
        [0.005413 * np.cos(alpha), 0.00748],
    ]
    np.testing.assert_allclose(link(alpha), expected, atol=1e-12)


@pytest.mark.parametrize("variant", TABLE_II)
def test_table_ii(variant):
    increment = pair_increment(variant, J, MA, DA, M_P, SERIAL_LINK)
    total = SERIAL_LINK + HarmonicMatrix.of_constant(np.diag(MA)) + increment.inertia
    matrix = total(np.pi / 2)
    printed = [f"{x:.5f}" for x in (matrix[0, 0], matrix[0, 1], matrix[1, 1])]
    assert printed == [f"{x:.5f}" for x in TABLE_II[variant]]


@given(jacobian=jacobians, total=harmonics, serial=harmonics, alpha=finite)
def test_full_replaces_everything_by_the_identified_leg(jacobian, total, serial, alpha):
    """Eq. 19: whatever the CAD link was, links and motors together end up as J^T M_p J."""
    increment = pair_increment(Variant.S3N_FULL, jacobian, MA, DA, total, serial)
    matrix = (serial + HarmonicMatrix.of_constant(np.diag(MA)) + increment.inertia)(alpha)
    np.testing.assert_allclose(matrix, jacobian.T @ total(alpha) @ jacobian, atol=1e-12)


def test_link_increment_does_not_count_motors_twice():
    """Eq. 19, both of its forms."""
    first = link_increment(J, M_P, MA, SERIAL_LINK)
    act_norm = SERIAL_LINK + HarmonicMatrix.of_constant(np.diag(MA) + actuator_increment(J, MA))
    second = M_P.pull_back(J) - act_norm
    for alpha in (-2.0, -1.0, 0.3):
        np.testing.assert_allclose(first(alpha), second(alpha), atol=1e-15)


@given(jacobian=jacobians, first=positive, second=positive)
def test_identity_couples_nothing(jacobian, first, second):
    assert not actuator_increment(np.eye(2), [first, second]).any()
    gain = actuator_increment(jacobian, [first, second]) + np.diag([first, second])
    assert np.linalg.eigvalsh(gain).min() > 0  # kinetic energy stays positive


@settings(max_examples=200)
@given(
    jacobian=jacobians,
    motors=st.tuples(positive, positive, positive, positive),
    total=harmonics,
    serial=harmonics,
    variant=st.sampled_from(list(Variant)),
    injection=st.sampled_from(list(Injection)),
    lagged=st.sampled_from(list(LaggedTerms)),
)
def test_split_adds_up(jacobian, motors, total, serial, variant, injection, lagged):
    """However it is shared out, the sum is kin-only plus the increment, and MuJoCo takes it."""
    inertia, damping = np.array(motors[:2]), np.array(motors[2:])
    increment = pair_increment(variant, jacobian, inertia, damping, total, serial)
    split = split_increment(injection, jacobian, inertia, damping, increment, lagged)
    for alpha in (-2.5, -0.4, 1.0):
        np.testing.assert_allclose(
            split.total_inertia()(alpha),
            np.diag(inertia) + increment.inertia(alpha),
            atol=1e-9,
        )
    np.testing.assert_allclose(
        split.total_damping(), np.diag(damping) + increment.damping, atol=1e-9
    )
    assert (split.armature >= 0).all()
    assert (split.damping >= 0).all()
    assert all(t.armature >= 0 for t in split.tendons)


def test_mass_matrix_leaves_nothing_to_lag_for_act_and_the_coupling_for_full():
    act = pair_increment(Variant.S3N_ACT, J, MA, DA, M_P, SERIAL_LINK)
    split = split_increment(Injection.MASS_MATRIX, J, MA, DA, act)
    assert split.lagged_inertia.magnitude == 0
    # One motor turns with both joints: its tendon is its row of J, the other's is a joint.
    (tendon,) = split.tendons
    assert (tuple(tendon.coefficients), tendon.armature) == ((1, 1), 0.0162)
    np.testing.assert_allclose(split.armature, [0.0162, 0], atol=1e-15)

    full = pair_increment(Variant.S3N_FULL, J, MA, DA, M_P, SERIAL_LINK)
    split = split_increment(Injection.MASS_MATRIX, J, MA, DA, full)
    in_actuator = split.lagged_inertia.pull_back(np.linalg.inv(J))
    coupling = (0.005413 - 0.003675) * np.array([[0, 1], [1, 0]])
    np.testing.assert_allclose(in_actuator.cosine, coupling, atol=1e-12)
    np.testing.assert_allclose(in_actuator.constant, 0, atol=1e-12)


def test_paper_split_is_equations_25_to_27():
    full = pair_increment(Variant.S3N_FULL, J, MA, DA, M_P, SERIAL_LINK)
    split = split_increment(Injection.QFRC_APPLIED, J, MA, DA, full, LaggedTerms.PAPER)
    np.testing.assert_allclose(split.armature, [0.0324, 0.0162])
    np.testing.assert_allclose(split.damping, [0.1944, 0.0972])
    expected = 0.0162 * np.array([[0, 1], [1, 0]]) + link_increment(J, M_P, MA, SERIAL_LINK)(-1.3)
    np.testing.assert_allclose(split.lagged_inertia(-1.3), expected, atol=1e-12)


@given(harmonic=harmonics)
def test_fit_recovers_a_harmonic(harmonic):
    alpha = np.linspace(-2.5, -0.4, 9)
    fit, residual = HarmonicMatrix.fit(alpha, harmonic(alpha))
    assert residual < 1e-10
    np.testing.assert_allclose(fit(0.9), harmonic(0.9), atol=1e-8)


def test_fit_residual_shows_what_is_no_harmonic():
    alpha = np.linspace(-2.5, -0.4, 9)
    second = M_P(alpha) + 1e-3 * np.cos(2 * alpha)[:, None, None]
    assert HarmonicMatrix.fit(alpha, second)[1] > 1e-5


def test_angle_offset_turns_alpha():
    shifted = parallel_inertia(0.05, 0.006, 0.02, angle_offset=0.4)
    np.testing.assert_allclose(shifted(0.3), parallel_inertia(0.05, 0.006, 0.02)(0.7), atol=1e-15)


@pytest.mark.parametrize(("share", "settles"), [(0.9, True), (1.1, False)])
def test_spectral_radius_tells_whether_the_lagged_iteration_settles(share, settles):
    rng = np.random.default_rng(1)
    mass = np.eye(3) + 0.1 * np.ones((3, 3))
    lagged = rng.normal(size=(3, 3))
    lagged = lagged + lagged.T
    damping, timestep = np.array([0.5, 0.0, 1.0]), 0.01
    lagged *= share / spectral_radius(mass, damping, timestep, lagged)
    np.testing.assert_allclose(spectral_radius(mass, damping, timestep, lagged), share, rtol=1e-9)
    acceleration, force = np.zeros(3), np.ones(3)
    implicit = mass + timestep * np.diag(damping)
    for _ in range(300):
        acceleration = np.linalg.solve(implicit, force - lagged @ acceleration)
    error = np.abs(acceleration - np.linalg.solve(implicit + lagged, force)).max()
    assert bool(error < 1e-6) is settles

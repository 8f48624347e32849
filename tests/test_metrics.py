"""Metrics and recordings against signals whose figures are known in closed form."""

from dataclasses import replace

import numpy as np
import pytest

from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.recording import Recording, written_whole

DT = 0.003
FREQUENCY = 5.0
OMEGA = 2.0 * np.pi * FREQUENCY
# 600 steps of 3 ms are exactly 9 periods of 5 Hz, so that means over them are exact.
WHOLE_PERIODS = 600


def quaternion_zyx(yaw, pitch, roll) -> np.ndarray:
    """Shape (T, 4): R = Rz(yaw) Ry(pitch) Rx(roll), written out from half angles."""
    cy, sy = np.cos(np.asarray(yaw) / 2), np.sin(np.asarray(yaw) / 2)
    cp, sp = np.cos(np.asarray(pitch) / 2), np.sin(np.asarray(pitch) / 2)
    cr, sr = np.cos(np.asarray(roll) / 2), np.sin(np.asarray(roll) / 2)
    return np.stack(
        [
            cy * cp * cr + sy * sp * sr,
            cy * cp * sr - sy * sp * cr,
            cy * sp * cr + sy * cp * sr,
            sy * cp * cr - cy * sp * sr,
        ],
        axis=-1,
    )


def make_recording(
    amplitude=0.08, lag=0.3, command=0.1, n=WHOLE_PERIODS, start=0.0, force=(20.0, 30.0), **fields
) -> Recording:
    """A robot that pitches as amplitude * sin(w t - lag) on two feet under steady load."""
    time = start + DT * np.arange(n)
    pitch = amplitude * np.sin(OMEGA * time - lag)
    rate = amplitude * OMEGA * np.cos(OMEGA * time - lag)
    zero = np.zeros(n)
    foot_force = np.zeros((n, 2, 3))
    foot_force[:, :, 2] = force
    content = {
        "joint_names": ("hip", "knee", "other"),
        "foot_names": ("left", "right"),
        "time": time,
        "joint_position": np.zeros((n, 3)),
        "joint_velocity": np.zeros((n, 3)),
        "motor_torque": np.tile([3.0, -4.0, 0.0], (n, 1)),
        "base_position": np.stack([0.3 * np.linspace(0, 1, n), zero, zero + 0.3], axis=1),
        "base_quaternion": quaternion_zyx(zero, pitch, zero),
        "base_linear_velocity": np.zeros((n, 3)),
        "base_angular_velocity": np.stack([zero, rate, zero], axis=1),
        "foot_force": foot_force,
        "qpos": np.zeros((n, 7)),
        "command": {
            "pitch_rad": command * np.sin(OMEGA * time),
            "pitch_rate_rad_s": command * OMEGA * np.cos(OMEGA * time),
        },
        "meta": {"frequency_hz": FREQUENCY, "amplitude_rad": command},
    }
    return Recording(**(content | fields))


# --- recording ----------------------------------------------------------------------------


def test_pitch_and_rate_of_a_turned_and_rolled_base():
    """theta-dot from the body rates equals the derivative of theta, all three angles moving."""
    t = 1e-4 * np.arange(4001)
    yaw, pitch, roll = 2.0 + 0.7 * t, 0.4 * np.sin(9 * t), 0.5 * np.cos(7 * t)
    yaw_dot, pitch_dot, roll_dot = 0.7, 3.6 * np.cos(9 * t), -3.5 * np.sin(7 * t)
    body_rate = np.stack(  # textbook ZYX kinematics
        [
            roll_dot - yaw_dot * np.sin(pitch),
            pitch_dot * np.cos(roll) + yaw_dot * np.cos(pitch) * np.sin(roll),
            -pitch_dot * np.sin(roll) + yaw_dot * np.cos(pitch) * np.cos(roll),
        ],
        axis=1,
    )
    rec = make_recording(
        n=len(t),
        time=t,
        # The factor is a drifted quaternion norm, which must not show.
        base_quaternion=1.01 * quaternion_zyx(yaw, pitch, roll),
        base_angular_velocity=body_rate,
    )
    np.testing.assert_allclose(rec.pitch, pitch, atol=1e-12)
    np.testing.assert_allclose(rec.roll, roll, atol=1e-12)
    np.testing.assert_allclose(rec.pitch_rate, pitch_dot, atol=1e-12)
    # Independent of the kinematics above: central differences err by h^2 / 6 * 0.4 * 9^3 = 5e-7.
    np.testing.assert_allclose(rec.pitch_rate[1:-1], np.gradient(rec.pitch, t)[1:-1], atol=1e-6)


def test_nose_down_is_positive():
    nose = make_recording(amplitude=0.2, lag=-np.pi / 2, n=1)  # pitch +0.2 at t = 0
    w, x, y, z = nose.base_quaternion[0]
    forward_z = 2.0 * (x * z - w * y)  # z of the body's x axis in the world
    assert nose.pitch[0] == pytest.approx(0.2)
    assert forward_z == pytest.approx(-np.sin(0.2))


@pytest.mark.parametrize("name", Recording.array_names())
def test_wrong_shape_names_the_field_and_both_shapes(name):
    good = make_recording()
    bad = getattr(good, name)[:-1]
    if name == "time":
        bad = bad[:, None]
    with pytest.raises(ValueError, match=name) as raised:
        replace(good, **{name: bad})
    assert str(bad.shape) in str(raised.value)
    assert "expected" in str(raised.value)


def test_wrong_command_and_time_are_refused():
    good = make_recording(n=10)
    with pytest.raises(ValueError, match="pitch_rad"):
        replace(good, command={"pitch_rad": np.zeros(9)})
    for time in (np.zeros(10), good.time[::-1], np.where(np.arange(10) == 4, np.nan, good.time)):
        with pytest.raises(ValueError, match="time"):
            replace(good, time=time)


def test_arrays_are_read_only_copies():
    positions = np.zeros((10, 3))
    rec = make_recording(n=10, base_position=positions)
    positions[0] = 1.0
    assert rec.base_position[0, 0] == 0.0
    for array in (rec.base_position, rec.command["pitch_rad"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_slice_time_keeps_stamps_and_forgives_rounding():
    # Simulators add up their steps, so stamps lie above, on or below the decimal number meant.
    rec = make_recording(time=np.cumsum(np.full(WHOLE_PERIODS, DT)) - DT)
    assert set(np.sign(rec.time - np.round(rec.time, 3))) == {-1.0, 0.0, 1.0}
    for k in range(1, 599):
        cut = rec.slice_time(round(k * DT, 3))
        assert cut.time[0] == rec.time[k]
        assert rec.slice_time(0.0, round(k * DT, 3)).time.size == k
    part = rec.slice_time(0.3, 0.6)
    np.testing.assert_array_equal(part.time, rec.time[100:200])
    np.testing.assert_array_equal(part.command["pitch_rad"], rec.command["pitch_rad"][100:200])
    np.testing.assert_array_equal(part.foot_force, rec.foot_force[100:200])
    assert part.duration_s == pytest.approx(0.3)
    assert part.meta == rec.meta
    with pytest.raises(ValueError, match="no sample"):
        rec.slice_time(5.0)


def test_save_and_load_give_the_same_recording(tmp_path):
    rec = make_recording(fell=True)
    path = rec.save(tmp_path / "new" / "episode")  # no suffix, missing folder
    again = Recording.load(path)
    for name in Recording.array_names():
        np.testing.assert_array_equal(getattr(again, name), getattr(rec, name))
    assert again.joint_names == rec.joint_names
    assert again.foot_names == rec.foot_names
    assert again.meta == rec.meta
    assert again.fell is True
    assert again.command.keys() == rec.command.keys()
    np.testing.assert_array_equal(again.command["pitch_rad"], rec.command["pitch_rad"])
    assert [p.name for p in path.parent.iterdir()] == ["episode"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write() -> None:
        with written_whole(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_load_says_what_is_wrong(tmp_path):
    whole = make_recording(n=20).save(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "array.npz.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", x=1)
    for name in ("text.npz", "empty.npz", "cut.npz", "array.npz.npy", "other.npz", "none.npz"):
        with pytest.raises(UserError, match=name):
            Recording.load(tmp_path / name)


# --- signals ------------------------------------------------------------------------------


def test_rmse_of_a_sine_is_its_amplitude_over_root_two():
    t = DT * np.arange(WHOLE_PERIODS)
    signal = np.cos(3 * t)
    assert metrics.rmse(signal + 0.7 * np.sin(OMEGA * t), signal) == pytest.approx(0.7 / 2**0.5)
    with pytest.raises(ValueError, match="shapes"):
        metrics.rmse(np.zeros((5, 1)), np.zeros(5))
    with pytest.raises(ValueError, match="empty"):
        metrics.rmse([], [])


def test_phase_average_of_a_sine_is_its_mean_over_each_bin():
    """The mean of sin over a bin of width d is sin(centre) * sin(d / 2) / (d / 2)."""
    n_bins, per_bin = 12, 200
    time = (np.arange(3 * n_bins * per_bin) + 0.5) / (n_bins * per_bin * FREQUENCY)
    phase, mean, std = metrics.phase_average(time, np.sin(OMEGA * time), FREQUENCY, n_bins)
    half = np.pi / n_bins
    np.testing.assert_allclose(phase, 2 * half * (np.arange(n_bins) + 0.5))
    # The factor is 0.9886; 200 midpoints a bin give it to (d / 200)^2 / 24 = 3e-7.
    np.testing.assert_allclose(mean, np.sin(phase) * np.sin(half) / half, atol=1e-6)
    # Variance within a bin: mean of sin^2 less the square of the mean.
    mean_square = 0.5 - 0.5 * np.cos(2 * phase) * np.sin(2 * half) / (2 * half)
    np.testing.assert_allclose(std, np.sqrt(mean_square - mean**2), atol=1e-5)


def test_phase_average_with_a_period_that_is_no_multiple_of_the_step():
    """66.67 steps a period: three periods visit 200 phases, so all 72 bins of 5 deg are filled.

    A sample lies at most half a bin (2.5 deg) off its centre: error below sin(2.5 deg).
    """
    t = DT * np.arange(WHOLE_PERIODS)
    two = np.stack([np.sin(OMEGA * t), np.cos(OMEGA * t)], axis=1)
    phase, mean, std = metrics.phase_average(t, two, FREQUENCY)
    assert mean.shape == std.shape == (72, 2)
    np.testing.assert_allclose(
        mean, np.stack([np.sin(phase), np.cos(phase)], axis=1), atol=np.sin(np.deg2rad(2.51))
    )


def test_phase_average_puts_edges_up_and_leaves_empty_bins_nan():
    time = np.array([0.0, 0.25, 0.5 - 1e-12, 1.0, 7.25])  # at 1 Hz with 4 bins: 0, 1, 2, 0, 1
    _, mean, std = metrics.phase_average(time, [1.0, 2.0, 5.0, 3.0, 4.0], 1.0, n_bins=4)
    np.testing.assert_array_equal(mean, [2.0, 3.0, 5.0, np.nan])
    np.testing.assert_array_equal(std, [1.0, 1.0, 0.0, np.nan])


def test_sine_fit_over_a_broken_number_of_periods():
    t = 0.123 + DT * np.arange(157)
    amplitude, phase, offset = metrics.sine_fit(t, 0.4 + 0.2 * np.sin(OMEGA * t - 2.0), FREQUENCY)
    assert (amplitude, phase, offset) == pytest.approx((0.2, -2.0, 0.4), abs=1e-12)
    with pytest.raises(ValueError, match="determine"):
        metrics.sine_fit(t[:2], t[:2], FREQUENCY)
    with pytest.raises(ValueError, match="determine"):  # 25 Hz sampled at 25 Hz is a constant
        metrics.sine_fit(np.arange(50) / 25.0, np.ones(50), 25.0)


@pytest.mark.parametrize("lag", [-3.0, -0.4, 0.0, 1.2, 3.0])
def test_phase_lag_is_positive_for_a_late_response_and_wraps(lag):
    t = DT * np.arange(400)
    command = 0.1 * np.sin(OMEGA * t + 2.5)  # the difference of phases leaves (-pi, pi]
    response = 0.3 * np.sin(OMEGA * t + 2.5 - lag) + 1.0
    assert metrics.phase_lag(t, command, response, FREQUENCY) == pytest.approx(lag, abs=1e-9)


def test_wrap_angle():
    assert metrics.wrap_angle(np.pi) == np.pi
    assert metrics.wrap_angle(-np.pi) == np.pi
    assert metrics.wrap_angle(5 * np.pi / 2) == pytest.approx(np.pi / 2)


# --- contact ------------------------------------------------------------------------------


def test_contact_fractions():
    force = np.full((10, 2), 50.0)
    force[:3, 0] = 0.0  # left up for 3 samples
    force[2:5, 1] = 0.5  # right, below the threshold of 1 N, for 3; both for one of them
    force[7, 1] = 1.0  # exactly the threshold is not above it
    np.testing.assert_allclose(metrics.contact_fractions(force), [0.7, 0.6])
    assert metrics.contact_kept_fraction(force) == pytest.approx(0.4)
    assert metrics.contact_kept_fraction(force, threshold_n=0.4) == pytest.approx(0.7)


# --- gaps ---------------------------------------------------------------------------------


def test_grf_norm_rmse_of_constant_and_sine_gaps():
    ours = make_recording(force=(20.0, 30.0))
    wave = np.stack([np.full(600, 23.0), 30.0 + 4.0 * np.sin(OMEGA * ours.time)], axis=1)
    theirs = make_recording(force=wave)
    gap = metrics.grf_norm_rmse(ours, theirs)
    np.testing.assert_allclose(gap, [3.0, 4.0 / 2**0.5], rtol=1e-12)
    assert metrics.root_mean_square(gap) == pytest.approx(np.sqrt((9.0 + 8.0) / 2))


def test_grf_norm_rmse_aligns_other_stamps_by_time():
    """A log at 1 kHz that starts later: a ramp is interpolated exactly, so no gap is seen."""
    ours = make_recording(force=np.stack([10 + 5 * DT * np.arange(600)] * 2, axis=1))
    log_time = 0.5 + 0.001 * np.arange(700)
    theirs = make_recording(n=700, time=log_time, force=np.stack([10 + 5 * log_time] * 2, axis=1))
    np.testing.assert_allclose(metrics.grf_norm_rmse(ours, theirs), 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="share no time"):
        metrics.grf_norm_rmse(ours, make_recording(start=10.0))
    with pytest.raises(ValueError, match="feet differ"):
        metrics.grf_norm_rmse(ours, make_recording(foot_names=("a", "b")))


def test_phase_averaged_grf_gap_does_not_see_what_averages_out():
    """A gap that alternates from cycle to cycle counts over the record, not over the phase."""
    ours = make_recording(force=(20.0, 30.0))
    # 200 samples are three periods; flipping every 200 samples cancels over 400 at each phase.
    sign = np.where(np.arange(400) < 200, 1.0, -1.0)
    theirs = make_recording(n=400, force=np.stack([20 + 6 * sign, np.full(400, 25.0)], axis=1))
    np.testing.assert_allclose(metrics.grf_norm_rmse(ours, theirs), [6.0, 5.0])
    phase, gap = metrics.grf_norm_phase_gap(ours, theirs)
    assert phase.shape == (72,)
    assert gap.shape == (72, 2)
    np.testing.assert_allclose(metrics.grf_norm_phase_rmse(ours, theirs), [0.0, 5.0], atol=1e-12)


def test_pitch_rate_rmse_is_relative_to_the_reference():
    t = np.arange(1000) / 1000.0
    reference = 1.6 * np.sin(2 * np.pi * t)  # 3.2 rad/s peak to peak
    simulated = 3.0 * reference  # off by an amplitude of 3.2
    expected = 100.0 * (3.2 / 2**0.5) / 3.2
    assert metrics.pitch_rate_rmse_percent(simulated, reference) == pytest.approx(expected)


def test_e_rmse_gives_table_iv():
    """Table IV's own columns are consistent with Eq. 34 to the digits printed (+-0.0005)."""
    table = {(0.167, 0.144): 19.46, (0.220, 0.167): 24.17, (0.164, 0.128): 18.26,
             (0.074, 0.122): 12.23}  # fmt: skip
    for (e_vx, e_wz), percent in table.items():
        rounding = 100 / 2 * 2 * 0.0005 / 0.8 + 0.005
        assert metrics.e_rmse(e_vx, e_wz, 0.8, -0.8) == pytest.approx(percent, abs=rounding)


def test_phase_gap_and_e_phi_of_constant_errors():
    """0.08 m/s of 0.8 and 0.04 rad/s of 0.8, signs changing: (10 % + 5 %) / 2 in every bin."""
    time = DT * np.arange(2700)
    phase = 0.8 * time  # a lap of 7.85 s and a little more
    sign = np.where(np.arange(2700) % 2, 1.0, -1.0)
    zero = np.zeros(2700)
    args = (0.8 + 0.08 * sign, zero + 0.8, zero - 0.8, -0.8 + 0.04 * sign, 0.8, -0.8)
    centres, gap = metrics.velocity_phase_gap(phase, *args)
    np.testing.assert_allclose(gap, np.full(72, 7.5))
    assert centres[0] == pytest.approx(np.deg2rad(2.5))
    assert metrics.e_phi(gap) == pytest.approx(7.5)


def test_e_phi_weighs_bins_not_samples_and_needs_the_whole_lap():
    """Eq. 36 averages bins: a slow quarter with 3 times the samples counts as a quarter."""
    phase = np.concatenate([np.linspace(0, np.pi / 2, 3000, endpoint=False),
                            np.linspace(np.pi / 2, 2 * np.pi, 3000, endpoint=False)])  # fmt: skip
    error = np.where(phase < np.pi / 2, 0.8, 0.0)
    zero = np.zeros(6000)
    _, gap = metrics.velocity_phase_gap(phase, error, zero, zero, zero, 0.8, 0.8)
    assert metrics.e_phi(gap) == pytest.approx(50.0 / 4)
    half = phase < np.pi
    _, cut = metrics.velocity_phase_gap(phase[half], *[error[half]] * 4, 0.8, 0.8)
    assert np.isnan(metrics.e_phi(cut))
    with pytest.raises(ValueError, match="shapes"):
        metrics.velocity_phase_gap(phase, error[:-1], zero, zero, zero, 0.8, 0.8)


# --- the pitch task -------------------------------------------------------------------------


def test_pitch_metrics_of_a_known_answer():
    amplitude, lag, command = 0.08, 0.3, 0.1
    force = np.tile([20.0, 30.0], (800, 1))
    force[500:560, 0] = 0.0  # after settling: 600 samples from 0.6 s on
    result = metrics.pitch_metrics([make_recording(n=800, force=force)] * 2, settle_s=0.6)
    error = abs(amplitude * np.exp(-1j * lag) - command)  # amplitude of the difference
    assert result["pitch_rmse_rad"] == pytest.approx(error / 2**0.5)
    assert result["pitch_rate_rmse_rad_s"] == pytest.approx(error * OMEGA / 2**0.5)
    assert result["pitch_amplitude_rad"] == pytest.approx(amplitude)
    assert result["pitch_phase_lag_rad"] == pytest.approx(lag)
    assert result["pitch_in_phase_gain"] == pytest.approx(0.8 * np.cos(lag))
    # Bins of 5 deg around the peak: its height is met to 1 - cos(5 deg) = 0.4 %.
    swing = 2 * amplitude * OMEGA
    assert result["pitch_rate_peak_to_peak_rad_s"] == pytest.approx(swing, rel=4e-3)
    assert result["contact_kept_fraction"] == result["contact_kept_fraction_left"]
    assert result["contact_kept_fraction"] == pytest.approx(0.9)
    assert result["contact_kept_fraction_right"] == 1.0
    assert result["grf_norm_mean_n_left"] == pytest.approx(18.0)
    assert result["grf_norm_mean_n"] == pytest.approx(24.0)
    assert result["grf_norm_std_n_left"] == pytest.approx(20.0 * 0.3)  # sqrt(0.9 * 0.1)
    assert result["grf_norm_std_n"] == pytest.approx(6.0 / 2**0.5)
    assert result["torque_rms_nm"] == pytest.approx(5.0 / 3**0.5)
    assert result["torque_peak_nm"] == 4.0
    assert result["base_height_mean_m"] == pytest.approx(0.3)
    assert result["base_drift_m"] == pytest.approx(0.3)
    assert result["duration_s"] == pytest.approx(2.4)
    assert (result["episodes"], result["falls"]) == (2, 0)


def test_pitch_metrics_pool_samples_and_leave_out_the_start():
    """Errors 0 over 600 and 0.02 * sqrt(1/2) over 1800 settled samples: pooled, not averaged."""
    perfect = make_recording(amplitude=0.1, lag=0.0, n=800)
    small = make_recording(amplitude=0.08, lag=0.0, n=2000)
    result = metrics.pitch_metrics([perfect, small], settle_s=0.6)
    assert result["pitch_rmse_rad"] == pytest.approx(0.02 / 2**0.5 * np.sqrt(1800 / 2400))
    assert result["pitch_amplitude_rad"] == pytest.approx(0.09)
    wild = np.array(perfect.foot_force)
    wild[:200] = 0.0  # all of it before 0.6 s
    settled = metrics.pitch_metrics([replace(perfect, foot_force=wild)], settle_s=0.6)
    assert settled["contact_kept_fraction"] == 1.0


def test_pitch_metrics_average_lags_across_the_wrap():
    recordings = [make_recording(lag=np.pi - 0.1), make_recording(lag=np.pi + 0.1)]
    result = metrics.pitch_metrics(recordings, settle_s=0.6)
    assert abs(result["pitch_phase_lag_rad"]) == pytest.approx(np.pi)
    assert result["pitch_in_phase_gain"] == pytest.approx(-0.8 * np.cos(0.1))


def test_pitch_lag_is_counted_from_the_command_whatever_its_phase():
    rec = make_recording(lag=0.3)
    early = {**rec.command, "pitch_rad": 0.1 * np.sin(OMEGA * rec.time + 0.5)}
    result = metrics.pitch_metrics([replace(rec, command=early)], settle_s=0.6)
    assert result["pitch_phase_lag_rad"] == pytest.approx(0.8)


def test_pitch_metrics_of_early_falls():
    """A fall before settling counts as a fall and leaves the tracking figures alone."""
    early = make_recording(amplitude=0.5, n=100, fell=True)
    fine = make_recording(n=800)
    both = metrics.pitch_metrics([fine, early], settle_s=0.6)
    alone = metrics.pitch_metrics([fine], settle_s=0.6)
    assert (both["falls"], both["episodes"]) == (1, 2)
    assert both["pitch_rmse_rad"] == alone["pitch_rmse_rad"]
    only = metrics.pitch_metrics([early], settle_s=0.6)
    assert only.keys() == alone.keys()
    assert only["falls"] == 1
    assert np.isnan(only["pitch_rmse_rad"])
    assert np.isnan(only["contact_kept_fraction_left"])
    # One sample: no period, no step, still an answer.
    assert metrics.pitch_metrics([make_recording(n=1, fell=True)])["falls"] == 1


def test_pitch_metrics_refuse_what_they_cannot_judge():
    good = make_recording()
    with pytest.raises(ValueError, match="no recording"):
        metrics.pitch_metrics([])
    with pytest.raises(ValueError, match="frequency_hz"):
        metrics.pitch_metrics([replace(good, meta={})])
    with pytest.raises(ValueError, match="pitch_rate_rad_s"):
        metrics.pitch_metrics([replace(good, command={"pitch_rad": good.time})])
    with pytest.raises(ValueError, match="feet differ"):
        metrics.pitch_metrics([good, replace(good, foot_names=("a", "b"))])


def test_metric_table_is_aligned_and_has_units():
    result = metrics.pitch_metrics([make_recording()], settle_s=0.6)
    result |= {"something_else": 1.25, "pitch_in_phase_gain": np.nan}
    lines = metrics.metric_table(result).splitlines()
    assert len(lines) == len(result)
    text = dict(zip(result, lines, strict=True))
    assert text["something_else"].split() == ["something_else", "1.25"]
    assert text["pitch_phase_lag_rad"].split()[-2:] == ["17.2", "deg"]  # 0.3 rad
    assert text["contact_kept_fraction_left"].split()[-3:] == ["left", "100.0", "%"]
    assert text["pitch_in_phase_gain"].split()[-1] == "-"
    ends = {line.rindex(" rad") for line in lines if line.endswith(" rad")}
    assert len(ends) == 1
    assert metrics.metric_table({}) == ""


def test_a_spread_over_one_trial_is_no_row():
    known = {"trials": 3.0, "e_vx_m_s": 0.02, "e_vx_m_s_std": 0.01}
    one = known | {"trials": 1.0, "e_vx_m_s_std": np.nan}
    assert len(metrics.metric_table(known).splitlines()) == 3
    lines = metrics.metric_table(one).splitlines()
    assert [line.split()[0] for line in lines] == ["trials", "forward"]
    assert metrics.counted(1.0, "episode") == "1 episode"
    assert metrics.counted(0, "fall") == "0 falls"


def test_torques_stand_together():
    names = list(metrics.pitch_metrics([make_recording()]))
    assert names.index("torque_peak_nm") == names.index("torque_rms_nm") + 1

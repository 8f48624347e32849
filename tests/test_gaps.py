"""Gaps between simulated trials and references, on signals whose gaps are known."""

from dataclasses import replace

import numpy as np
import pytest
from test_metrics import make_recording

from s3n_mjx.evaluation import plots
from s3n_mjx.evaluation.gaps import pitch_gap
from s3n_mjx.evaluation.logs import read_log, write_log

SETTLE = 0.2  # one period of 5 Hz, so that means over the rest are exact


def with_force(recording, force):
    values = np.zeros_like(recording.foot_force)
    values[:, :, 2] = force
    return replace(recording, foot_force=values)


def test_known_offsets_of_force_and_rate():
    """3 N and 4 N more on the reference's feet; its pitch rate 25 % larger."""
    simulated = make_recording(amplitude=0.08)
    reference = with_force(make_recording(amplitude=0.1), [23.0, 34.0])
    gap = pitch_gap([simulated, simulated], [reference, reference], SETTLE)
    assert gap["trials"] == 2
    assert gap["reference_falls"] == 0
    assert gap["grf_norm_rmse_n_left"] == pytest.approx(3.0)
    assert gap["grf_norm_rmse_n_right"] == pytest.approx(4.0)
    assert gap["grf_norm_rmse_n"] == pytest.approx(np.sqrt((9 + 16) / 2))
    assert gap["grf_norm_phase_rmse_n"] == pytest.approx(np.sqrt((9 + 16) / 2))
    # A sine of 0.02 of 0.1 w: RMS 0.02 w / sqrt 2, over a peak to peak of 0.2 w.
    assert gap["pitch_rate_rmse_percent"] == pytest.approx(10 / np.sqrt(2), rel=5e-3)
    assert gap["grf_norm_rmse_n_std"] == 0


def test_spread_is_the_sample_standard_deviation():
    simulated = make_recording()
    references = [with_force(simulated, [20.0 + d, 30.0 + d]) for d in (1.0, 2.0, 6.0)]
    gap = pitch_gap([simulated] * 3, references, SETTLE)
    assert gap["grf_norm_rmse_n"] == pytest.approx(3.0)
    assert gap["grf_norm_rmse_n_std"] == pytest.approx(np.std([1, 2, 6], ddof=1))


def test_a_foot_without_a_plate_is_nan_and_does_not_spoil_the_rest():
    simulated = make_recording()
    force = np.array(simulated.foot_force)
    force[:, 0], force[:, 1, 2] = np.nan, 35.0
    gap = pitch_gap([simulated], [replace(simulated, foot_force=force)], SETTLE)
    assert np.isnan(gap["grf_norm_rmse_n_left"])
    assert gap["grf_norm_rmse_n"] == pytest.approx(5.0)
    assert np.isnan(gap["grf_norm_rmse_n_std"])


def test_a_reference_that_fell_at_once_has_no_figures():
    simulated = make_recording()
    fallen = replace(simulated.slice_time(0.0, 0.1), fell=True)
    gap = pitch_gap([simulated], [fallen], SETTLE)
    assert (gap["trials"], gap["reference_falls"]) == (0, 1)
    assert np.isnan(gap["grf_norm_rmse_n"])


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_a_log_gives_the_same_gap_as_the_recording_behind_it(tmp_path, suffix):
    rng = np.random.default_rng(0)
    simulated = make_recording()
    noisy = simulated.foot_force + rng.normal(size=simulated.foot_force.shape)
    reference = replace(make_recording(amplitude=0.09, lag=0.35), foot_force=noisy)
    path = write_log(reference, tmp_path / f"trial.{suffix}")
    read = read_log(path, reference.joint_names, reference.foot_names)
    assert pitch_gap([simulated], [read], SETTLE) == pytest.approx(
        pitch_gap([simulated], [reference], SETTLE), rel=1e-12, nan_ok=True
    )


def test_a_slow_log_meets_only_some_phases():
    """100 Hz of a 5 Hz command are 20 of 72 bins: the gap is over those."""
    simulated = make_recording()
    fast = with_force(simulated, [23.0, 34.0])
    slow = replace(
        fast,
        **{name: getattr(fast, name)[::5] for name in fast.array_names()},
        command={name: signal[::5] for name, signal in fast.command.items()},
    )
    gap = pitch_gap([simulated], [slow], SETTLE)
    assert gap["grf_norm_phase_rmse_n_left"] == pytest.approx(3.0)
    assert gap["grf_norm_rmse_n_right"] == pytest.approx(4.0)


def test_figures_of_a_log_without_plates_or_base():
    simulated = make_recording()
    nothing = np.full_like(simulated.foot_force, np.nan)
    blind = replace(
        simulated,
        foot_force=nothing,
        base_angular_velocity=np.full_like(simulated.base_angular_velocity, np.nan),
    )
    groups = {"simulator": [simulated], "log": [blind]}
    assert "all feet down 100.0 %" in plots.grf_norm(groups, SETTLE).get_suptitle()
    plots.phase_averaged_pitch_rate(groups, SETTLE)
    assert np.isnan(pitch_gap([simulated], [blind], SETTLE)["pitch_rate_rmse_percent"])

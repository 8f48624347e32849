"""The main job for real: the `cpu` preset from nothing to an evaluated policy. Minutes each."""

import json

import pytest

from s3n_mjx import eval as evaluation
from s3n_mjx import train


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("variant", "injection"),
    [
        ("s3n_act", "qfrc_applied"),
        ("kin_only", "qfrc_applied"),
        ("kin_only_hr", "qfrc_applied"),
        ("s3n_full", "qfrc_applied"),
        ("s3n_act", "mass_matrix"),
    ],
)
def test_pitch_is_learnt_with_all_feet_planted(tmp_path, variant, injection):
    folder = tmp_path / "run"
    train.main(
        f"--preset cpu --variant {variant} --injection {injection} --run-dir {folder}".split()
    )
    evaluation.main(f"--checkpoint {folder} --out {tmp_path / 'eval'} --no-video".split())
    figures = json.loads((tmp_path / "eval" / "metrics.json").read_text())
    # Half the commanded amplitude in phase is 0.035 rad; the full one would unload the feet.
    assert figures["pitch_rmse_rad"] <= 0.045
    assert figures["contact_kept_fraction"] >= 0.99
    assert abs(figures["pitch_phase_lag_rad"]) < 0.5
    assert figures["falls"] == 0


@pytest.mark.e2e
def test_the_circle_is_walked_for_a_minute_in_the_simulator_and_on_the_closed_chain(tmp_path):
    folder = tmp_path / "run"
    train.main(f"--task circle --preset cpu --variant s3n_full --run-dir {folder}".split())
    evaluation.main(
        f"--checkpoint {folder} --out {tmp_path / 'eval'} --no-video --against closed_chain"
        " --level realistic --duration-s 60 --episodes 1".split()
    )
    figures = json.loads((tmp_path / "eval" / "metrics.json").read_text())
    assert figures["falls"] == figures["reference_falls"] == 0
    assert figures["vx_rmse_m_s"] < 0.05
    assert figures["wz_rmse_rad_s"] < 0.08
    assert figures["e_phi_percent"] < 8.0

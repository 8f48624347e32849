"""The wheel works outside the checkout: robots and presets are in it."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_wheel_works_outside_the_checkout(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    # The locked dependencies of this environment, and the package from the wheel alone.
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True, timeout=120
    )
    site = subprocess.run(
        [
            sys.executable,
            "-c",
            "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    script = (
        "import s3n_mjx; from s3n_mjx import resources;"
        "from s3n_mjx.robot.model import load_robot;"
        "from s3n_mjx.training.config import load_preset;"
        "print(s3n_mjx.__file__, resources.bundled_robot());"
        "load_robot(resources.bundled_robot()); load_preset('pitch', 'paper')"
    )
    # Appended by PYTHONPATH, the checkout's .pth file is not read: only the wheel can answer.
    done = subprocess.run(
        [python, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": site, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout

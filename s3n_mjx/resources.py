"""Where the bundled robots and presets lie: in the wheel, or in a source checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(packaged: str, checkout: str) -> Path:
    inside = _PACKAGE / packaged
    return inside if inside.is_dir() else _PACKAGE.parent / checkout


def assets_folder() -> Path:
    """Folder of bundled robots (`assets/` of the checkout, `s3n_mjx/assets/` of a wheel)."""
    return _folder("assets", "assets")


def presets_folder() -> Path:
    """Folder of training presets (`train/` of the checkout, `s3n_mjx/presets/` of a wheel)."""
    return _folder("presets", "train")


BUNDLED_ROBOT = "parallel_quadruped"


def bundled_robot() -> Path:
    """Description of the bundled robot, `robot.yaml`."""
    return assets_folder() / BUNDLED_ROBOT / "robot.yaml"

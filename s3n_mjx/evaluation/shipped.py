"""Trained policies to give away: a checkpoint, the command that made it, and its figures."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.compared import SIMULATOR
from s3n_mjx.evaluation.tasks import EVALUATIONS
from s3n_mjx.files import written_whole

FIGURES = "figures.json"


def ship(
    checkpoint: Path,
    folder: Path,
    task: str,
    command: str,
    settings: Mapping[str, Any],
    gaps: Mapping[str, Mapping[str, float]],
) -> None:
    """Copy a checkpoint to ``folder``, whole or not at all, with `figures.json` in it.

    Args:
        checkpoint: its folder.
        folder: to be made; an older policy there is replaced.
        task: that it was trained on.
        command: that trains it.
        settings: of the evaluation.
        gaps: by level of the reference, and figures in the simulator.

    Raises:
        UserError: ``folder`` is there and holds something else.
    """
    if folder.exists() and not (folder / FIGURES).is_file():
        raise UserError(f"{folder}: is there already, and is no policy; move it away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        shutil.copytree(checkpoint, temporary, dirs_exist_ok=True)
        figures = {side: metrics.finite(values) for side, values in gaps.items()}
        data = {
            "task": task,
            "command": command,
            "evaluation": dict(settings),
            "figures": figures,
        }
        (temporary / FIGURES).write_text(json.dumps(data, indent=2) + "\n")
        os.chmod(temporary, 0o755)
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_index(folder: Path) -> None:
    """`README.md` of a folder of policies: how each was trained and what it does."""
    lines = [
        "# Trained policies",
        "",
        "Each folder is a checkpoint for `python -m s3n_mjx.eval --checkpoint` and `python -m"
        " s3n_mjx.play --checkpoint`, with the command that trains it and all of its figures in"
        f" `{FIGURES}`. This page is written by `python -m s3n_mjx.compare --policies`.",
    ]
    for path in sorted(folder.glob(f"*/{FIGURES}")):
        if path.parent.name.startswith("."):
            continue  # what a killed run left
        data = json.loads(path.read_text())
        if data.get("task") not in EVALUATIONS:
            continue  # somebody else's file of that name
        task = EVALUATIONS[data["task"]]
        figures = {
            side: {key: math.nan if v is None else v for key, v in values.items()}
            for side, values in data["figures"].items()
        }
        told = data["evaluation"]
        lines += [
            "",
            f"## {path.parent.name}",
            "",
            "```sh",
            data["command"],
            "```",
            "",
            f"{told['trials']} trials of {told['duration_s']:g} s, the first"
            f" {told['settle_s']:g} s left out:",
            "",
        ]
        simulated = task.summary(figures[SIMULATOR], {}, "")
        lines.append(f"- {simulated}")
        for level, gap in figures.items():
            if level != SIMULATOR:
                words = task.summary(figures[SIMULATOR], gap, f"closed chain, {level}")
                lines.append(f"- {words.removeprefix(simulated).strip()}")
    with written_whole(folder / "README.md") as temporary:
        temporary.write_text("\n".join(lines) + "\n")

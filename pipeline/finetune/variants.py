"""Where the paper and its official code differ in the fine-tune: each difference is a param, a variant sets them all.

Paper: arXiv 2103.05247, section 2 and its appendix; code: kzl/universal-computation at 23b80fd1, `run.py`, `fpt.py`.
The paper counts 64 rows of positions and no final norm among what trains, and names neither dropout, nor clipping, nor
the gain of the orthogonal input layer. Its learning rate is 1e-3, on remote homology 1e-4 and for LSTMs 3e-4; the code
has one for all.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from pipeline.finetune.settings import FinetuneSettings, Recipe

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {
        "position_rows": "used",
        "final_norm": False,
        "frozen_dropout": False,
        "lr": 1e-3,
        "clip": "off",
        "input_dropout": 0.0,
        "adapter_gain": 1.0,
    },
    "code": {
        "position_rows": "all",
        "final_norm": True,
        "frozen_dropout": True,
        "lr": 1e-3,
        "clip": 1.0,
        "input_dropout": 0.1,
        "adapter_gain": 1.41,
    },
}
HOMOLOGY = "TAPE remote homology"
"""The name that the task's source bears."""
PAPER_LR = {HOMOLOGY: 1e-4, "lstm": 3e-4}


def recipe_of(settings: FinetuneSettings, data: str, backbone: str) -> Recipe:
    """The settings with every null replaced by what the variant says, for data and a backbone of these sources."""
    differences = VARIANTS[settings.variant]
    if settings.variant == "paper":
        differences = {**differences, "lr": PAPER_LR.get(data, PAPER_LR.get(backbone, differences["lr"]))}
    given = {name: value for name, value in asdict(settings).items() if name != "variant"}
    return Recipe(**given | {name: value for name, value in differences.items() if given[name] is None})


def in_words(settings: FinetuneSettings, data: str, backbone: str) -> str:
    """The variant, and what was set otherwise than it has it for these: `code, position_rows used`."""
    names = VARIANTS[settings.variant]
    theirs = recipe_of(replace(settings, **dict.fromkeys(names)), data, backbone)
    given = {name: getattr(settings, name) for name in names}
    if settings.lr_sweep is not None:
        given["lr"] = "swept"
    own = [f"{name} {value}" for name, value in given.items() if value not in (None, getattr(theirs, name))]
    return ", ".join([settings.variant, *own])

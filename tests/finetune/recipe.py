"""The settings of the fine-tune's tests."""

from __future__ import annotations

from typing import Any

import torch

from pipeline.finetune.settings import Recipe

CPU = torch.device("cpu")


def settings(**changes: Any) -> Recipe:
    recipe: dict[str, Any] = {
        "trainable": ("output", "layernorm", "input", "positions"),
        "final_norm": True,
        "position_rows": "used",
        "seed": 0,
        "steps": 12,
        "batch_size": 8,
        "evaluate_every": 4,
        "examples": "stored",
        "stop_at": None,
        "patience": None,
        "lr": 1e-3,
        "lr_sweep": None,
        "clip": 1.0,
        "adapter_gain": 1.41,
        "input_dropout": 0.1,
        "frozen_dropout": True,
        "compute_dtype": "float32",
        "threads": 1,
    }
    return Recipe(**(recipe | changes))

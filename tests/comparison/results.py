"""Results of one task and one backbone whose every number is known."""

from __future__ import annotations

from pathlib import Path

from pipeline.costs.record import CostRecord, MethodCost
from pipeline.identity import write_json

FLOORS = {"majority class": 0.1, "linear model on raw inputs": 0.9}


def add_regression(folder: Path) -> Path:
    """Beside `bit_xor` write `rain`, whose answers are numbers, with the same costs: a ridge probe and a fine-tune."""
    floors = {"train mean": -0.01, "linear model on raw inputs": 0.7}
    for path in [*folder.rglob("*bit_xor-b.json")]:
        content = path.read_text().replace("bit_xor-b", "rain-b")
        path.with_name(path.name.replace("bit_xor", "rain")).write_text(content)
    layer = {"ridge": {"test_r2": 0.75}}
    probe = {
        "method": "ridge",
        "layer": "final",
        "status": "fitted",
        "test_r2": 0.75,
        "test_interval": [0.6, 0.85],
        "test_answers": 50,
        "trained_parameters": 12,
        "epochs": 1,
        "floors": floors,
        "layers": {"1": layer, "final": layer},
        "learning_curve": [{"examples": 5, "test_r2": None}, {"examples": 50, "test_r2": 0.75}],
        "methods": {"logistic": {"status": "skipped: for classes, and the answers are numbers", "test_r2": None}},
    }
    write_json(folder / "metrics/probe/rain-b.json", probe)
    tuned = {"test_r2": -0.5, "test_interval": [-0.9, -0.2], "test_answers": 50, "floors": floors}
    more = {"trained_parameters": 34, "examples_seen": 1000, "recipe": "code"}
    write_json(folder / "metrics/finetune/rain-b.json", {**tuned, **more})
    task = {"choices": {}, "examples": {"train": 100, "validation": 9, "test": 50}, "floors": floors, "repeats": {}}
    mse = {"train mean": 4.2, "linear model on raw inputs": 1.25}
    write_json(folder / "metrics/tasks/rain.json", {**task, "counts": {}, "problem": "regression", "floors_mse": mse})
    (folder / "metrics/curves/rain-b.csv").write_text("step,validation_r2\n1,\n2,0.75\n")
    return folder


def write_results(folder: Path) -> Path:
    """Write `metrics/` and `data/cost/` of `bit_xor-b`: two probes, one of which did not converge, and a fine-tune."""
    costs, key = folder / "data/cost", "bit_xor-b"
    CostRecord("cache", key, 6.0, 600, 1, "cpu", 100).write(costs)
    methods = {"logistic": MethodCost(2.0, 200, 0.5, 50), "ridge": MethodCost(1.0, 100, None)}
    CostRecord("probe", key, 5.0, 500, 1, "cpu", 100, 0.5, methods).write(costs)
    CostRecord("finetune", key, 40.0, 8000, 1, "cpu", 100, 3.5).write(costs)
    layer = {name: {"test_accuracy": score} for name, score in (("logistic", 0.8), ("ridge", 0.6))}
    probe = {
        "method": "logistic",
        "layer": "final",
        "status": "fitted",
        "test_accuracy": 0.8,
        "test_interval": [0.7, 0.88],
        "test_answers": 50,
        "trained_parameters": 12,
        "epochs": 4,
        "floors": FLOORS,
        "confusion": [[20, 5], [5, 20]],
        "layers": {"1": layer, "final": layer},
        "learning_curve": [{"examples": 5, "test_accuracy": 0.5}, {"examples": 50, "test_accuracy": 0.8}],
        "methods": {
            "ridge": {
                "status": "not converged",
                "test_accuracy": 0.6,
                "test_interval": [0.47, 0.73],
                "trained_parameters": 12,
                "epochs": 1,
            },
        },
    }
    write_json(folder / f"metrics/probe/{key}.json", probe)
    tuned = {
        "test_accuracy": 0.94,
        "test_interval": [0.86, 0.98],
        "trained_parameters": 34,
        "examples_seen": 1000,
        "recipe": "code, position_rows used",
    }
    write_json(folder / f"metrics/finetune/{key}.json", {**tuned, "test_answers": 50, "floors": FLOORS})
    task = {"choices": {"split": "same"}, "examples": {"train": 100, "validation": 9, "test": 50}, "floors": FLOORS}
    counts = {"truncated": 0, "bad_rows": 3, "dropped_as_too_long": {"train": 2, "test": 0}}
    write_json(folder / "metrics/tasks/bit_xor.json", {**task, "repeats": {"test in train": 7}, "counts": counts})
    program = {"name": "xor", "kind": "task", "accuracy": 1.0, "examples": 64, "layers": 4, "width": 98, "steps": 13}
    other = {"name": "gcd", "kind": "program"}
    write_json(folder / "metrics/programs.json", [other, {**program, "flops_per_example": 1000}])
    (folder / "metrics/curves").mkdir()
    (folder / f"metrics/curves/{key}.csv").write_text("step,validation_accuracy\n1,0.5\n2,0.75\n")
    return folder

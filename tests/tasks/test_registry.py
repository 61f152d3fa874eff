from pathlib import Path

import pytest

from pipeline.params import Params, ParamsError
from pipeline.tasks.mnist import VARIANTS, Mnist
from pipeline.tasks.registry import task_settings
from pipeline.tasks.variants import choices

PARAMS = Path("params.yaml")


@pytest.mark.parametrize("name", Params(PARAMS).names("tasks"))
def test_every_entry_of_params_yaml_is_valid(name: str) -> None:
    settings = task_settings(Params(PARAMS), name)
    assert callable(settings.load)


def test_a_variant_sets_its_differences_together_and_each_can_be_set_alone() -> None:
    assert choices(Mnist("mnist", 0, "paper"), VARIANTS) == {"variant": "paper", "side": 32}
    assert choices(Mnist("mnist", 0, "code"), VARIANTS) == {"variant": "code", "side": 28}
    assert choices(Mnist("mnist", 0, "code", side=32), VARIANTS) == {"variant": "code", "side": 32}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{kind: mnist, seed: 0, variant: paper, sides: 32}", "unknown key tasks.t.sides; did you mean 'side'"),
        ("{kind: minst, seed: 0}", "tasks.t"),
        ("{kind: listops, seed: 0, variant: paper}", "Input should be 'paper-code' or 'repaired'"),
        ("{kind: listops, seed: 0, variant: repaired, folder: x}", "folder and archive are for source: lra_files"),
        ("{kind: cifar10, seed: 0.5, variant: paper}", "tasks.t.seed: Input should be a valid integer"),
        (
            "{kind: bit_xor, seed: 0, bits: 4, patch: 3, split: same, validation: .1, test: .1}",
            "patch 3 does not divide",
        ),
    ],
)
def test_what_is_wrong_in_params_is_named(tmp_path: Path, entry: str, reason: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"tasks:\n  t: {entry}\n")
    with pytest.raises(ParamsError, match=reason):
        task_settings(Params(path), "t")

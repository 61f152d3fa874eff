from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.features import open_features
from pipeline.probes.logistic import Standardisation, fit_path
from pipeline.probes.probe import run_probe
from pipeline.probes.settings import ProbeSettings
from pipeline.tasks.tokens import open_tokens
from tests.tiny import backbone, cache_settings

SETTINGS = ProbeSettings(penalties=(1.0, 0.1, 0.001), iterations=100, threads=1)


@pytest.fixture(scope="module")
def store(tiny_tokens, tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    plan = plan_extraction(open_tokens(tiny_tokens), backbone(tiny_bert), cache_settings(layers=(1, "final")), {})
    extract(plan, folder / "xor-tiny", Where(torch.device("cpu"), folder / "work"))
    return open_features(folder / "xor-tiny")


def test_the_penalty_is_chosen_on_validation_and_test_is_scored_with_it(store):
    metrics, cost = run_probe(store, SETTINGS, "xor-tiny")
    rows = {split: store.read(split).reshape(-1, 64) for split in ("train", "validation", "test")}
    labels = {split: store.labels(split).reshape(-1, 1) for split in rows}
    standardise = Standardisation.fit(rows["train"])
    path = fit_path(standardise.apply(rows["train"]), labels["train"], 2, SETTINGS.penalties, 100)

    def score(fit, split):
        return np.mean(fit.model.scores(standardise.apply(rows[split])).argmax(axis=2) == labels[split])

    best = max(score(fit, "validation") for fit in path)
    chosen = next(fit for fit in path if fit.penalty == metrics["penalty"])
    assert metrics["validation_accuracy"] == score(chosen, "validation") == best
    assert metrics["test_accuracy"] == score(chosen, "test")
    assert metrics["test_answers"] == len(labels["test"])
    assert metrics["trained_parameters"] == 64 * 2 + 2
    assert metrics["floors"] == {"majority class": 0.5}
    assert cost.flops > 0
    assert cost.seconds_per_epoch == pytest.approx(cost.seconds / metrics["epochs"])


def test_two_probes_are_equal(store):
    assert run_probe(store, SETTINGS, "k")[0] == run_probe(store, SETTINGS, "k")[0]

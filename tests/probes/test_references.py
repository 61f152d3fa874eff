"""The kNN reference and the paper's probe, against naive versions of themselves."""

from __future__ import annotations

import numpy as np
import torch

from pipeline.probes.neighbours import nearest_scores
from pipeline.probes.rows import ArrayRows
from pipeline.probes.sgd import LR, fit_sgd


def test_neighbours_are_the_nearest_of_all_blocks():
    generator = np.random.default_rng(0)
    x, labels = generator.standard_normal((60, 4)).astype(np.float32), generator.integers(0, 3, (60, 2))
    queries = generator.standard_normal((11, 4)).astype(np.float32)
    found = [nearest_scores(ArrayRows(x, labels, 3, size), queries, 5) for size in (60, 7, 3)]
    for row, query in enumerate(queries):
        similar = x @ query / np.linalg.norm(x, axis=1) / np.linalg.norm(query)
        nearest = np.argsort(-similar)[:5]
        for answer in range(2):
            votes = np.zeros(3)
            for other in nearest:
                votes[labels[other, answer]] += np.exp(similar[other] / 0.07)
            for scores in found:
                np.testing.assert_allclose(np.exp(scores[row, answer]), votes / votes.sum(), atol=1e-4)


def test_fewer_rows_than_neighbours_all_vote():
    x = np.eye(2, dtype=np.float32)
    scores = nearest_scores(ArrayRows(x, np.array([[0], [1]]), 2), x, 20)
    np.testing.assert_array_equal(scores.argmax(axis=2), [[0], [1]])


def test_the_papers_probe_is_pytorchs_adam_on_a_linear_layer():
    generator = np.random.default_rng(0)
    x, labels = generator.standard_normal((20, 6)).astype(np.float32), generator.integers(0, 3, (20, 2))
    found = fit_sgd(ArrayRows(x, labels, 3), 6, epochs=3, batch=8, seed=1)
    again = np.random.default_rng(1)
    start = again.uniform(-1 / np.sqrt(6), 1 / np.sqrt(6), (7, 6)).astype(np.float32)
    weight, bias = torch.tensor(start[:-1], requires_grad=True), torch.tensor(start[-1], requires_grad=True)
    adam = torch.optim.Adam([weight, bias], lr=LR)
    for _ in range(3):
        order = again.permutation(20)
        for rows in (order[:8], order[8:16], order[16:]):
            scores = (torch.from_numpy(x[rows]) @ weight + bias).reshape(-1, 3)
            adam.zero_grad()
            torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels[rows].reshape(-1))).backward()
            adam.step()
    np.testing.assert_allclose(found.weight, weight.detach(), atol=1e-5)
    np.testing.assert_allclose(found.bias, bias.detach(), atol=1e-5)

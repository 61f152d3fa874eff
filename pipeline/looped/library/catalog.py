"""The library with known answers, each computed another way than the program does: Python integers, or numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np

from pipeline.looped.isa import AnyProgram, Cell, FleqProgram, SubleqProgram, fill_cell
from pipeline.looped.library import fleq_program, lists, subleq_program

MATRIX = np.array([[2.0, 0.5, 0.0, 0.25], [0.5, 1.5, 0.5, 0.0], [0.0, 0.5, 1.25, 0.5], [0.25, 0.0, 0.5, 1.75]])
"""Symmetric and regular; its products stay within the range where a matrix product is most accurate."""


@dataclass(frozen=True)
class Case(Generic[AnyProgram]):
    """A program, and what its data must hold after HALT.

    Attributes:
        program: the program with its inputs.
        answers: the known values of some of its data.
        tolerance: largest error allowed in float64 and in float32; 0 for integers.
    """

    program: AnyProgram
    answers: Mapping[str, Sequence[Any]]
    tolerance: tuple[float, float] = (0.0, 0.0)


def _integers(
    name: str, inputs: Mapping[str, int], answers: Mapping[str, int], word_bits: int | None = None
) -> Case[SubleqProgram]:
    program = subleq_program(name, word_bits).with_values({key: [value] for key, value in inputs.items()})
    return Case(program, {key: [value] for key, value in answers.items()})


def _reals(
    name: str, inputs: Mapping[str, Any], answers: Mapping[str, Any], tolerance: tuple[float, float] = (2e-10, 2e-4)
) -> Case[FleqProgram]:
    program = fleq_program(name).with_values({key: [np.asarray(value)] for key, value in inputs.items()})
    cells = {key: [fill_cell(np.asarray(value), program.size, key)] for key, value in answers.items()}
    return Case(program, cells, tolerance)


def subleq_cases() -> dict[str, Case[SubleqProgram]]:
    """SUBLEQ programs: calculator, number theory, lists."""
    numbers = [-7, -6, -5, -4, 3, 2, 1]
    return {
        "add": _integers("add", {"x": 25, "y": -40}, {"y": -15}),
        "subtract": _integers("subtract", {"x": 17, "y": 5}, {"y": -12}),
        "multiply": _integers("multiply", {"a": 7, "b": -9}, {"product": -63}),
        "divide": _integers("divide", {"a": 47, "b": 5}, {"quotient": 9, "a": 2, "error": 0}),
        "square_root": _integers("square_root", {"x": 150}, {"root": math.isqrt(150)}),
        "power": _integers("power", {"base": -3, "exponent": 5}, {"result": -243}),
        "compare": _integers("compare", {"a": 100, "b": -100}, {"order": 1}),
        "factorial_0": _integers("factorial", {"n": 0}, {"result": 1}),
        "factorial_8": _integers("factorial", {"n": 8}, {"result": math.factorial(8)}),
        "factorial_18": _integers("factorial", {"n": 18}, {"result": math.factorial(18)}, word_bits=55),
        "gcd": _integers("gcd", {"a": 252, "b": 105}, {"a": math.gcd(252, 105)}),
        "reverse": Case(lists.reverse(numbers, 6), {"list": numbers[::-1]}),
        "search": Case(lists.search(numbers, 1, 6), {"found": [1], "index": [6]}),
        "sort": Case(lists.sort(numbers, 6), {"list": sorted(numbers)}),
    }


def fleq_cases() -> dict[str, Case[FleqProgram]]:
    """FLEQ programs: calculator, linear algebra, in-context learning, a list walked by a pointer."""
    product = fleq_program("matrix_product")
    a, b = (product.values(product.memory, name)[0] for name in ("a", "b"))
    return {
        "matrix_product": _reals("matrix_product", {}, {"c": a @ b}),
        "transpose": _reals("transpose", {}, {"b": np.arange(1.0, 17.0).reshape(4, 4).T}, tolerance=(0.0, 0.0)),
        "real_divide": _reals("divide", {"a": 7.0, "x": 2.5}, {"quotient": 2.8}, (1e-9, 1e-3)),
        "real_square_root": _reals("square_root", {"x": 7.0}, {"root": math.sqrt(7)}, (1e-9, 2e-3)),
        "inverse": inverse_case(MATRIX),
        "power_iteration": power_iteration_case(),
        "least_squares": least_squares_case(),
        "sgd_linear": _reals("sgd_linear", {}, {"w": [0.9, 0.55, 0.6, 0.2]}),
        "sgd_two_layers": sgd_two_layers_case(),
        "list_sum": _reals("list_sum", {}, {"sum": 31.0}, tolerance=(0.0, 0.0)),
    }


def inverse_case(a: np.ndarray) -> Case[FleqProgram]:
    """Newton's inverse of a 4 x 4 matrix."""
    scale = np.eye(4) / (a**2).sum()
    return _reals("inverse", {"a": a, "scale": scale}, {"x": np.linalg.inv(a)}, (1e-9, 5e-4))


def power_iteration_case() -> Case[FleqProgram]:
    """The largest eigenvalue and its vector, against numpy's."""
    program = fleq_program("power_iteration")
    (a,) = program.values(program.memory, "a")
    values, vectors = np.linalg.eigh(a)
    top = vectors[:, -1] * np.sign(vectors[0, -1])
    return _reals("power_iteration", {"start": 1 / np.linalg.norm(a)}, {"v": top, "value": values[-1]}, (1e-7, 5e-4))


def least_squares_case() -> Case[FleqProgram]:
    """A line through four points that do not lie on one."""
    x = np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [1.0, 1.5]])
    y = np.array([0.4, 1.1, 1.3, 2.1])
    ridge = np.diag([0.0, 0.0, 1.0, 1.0])
    gram = ridge.copy()
    gram[:2, :2] += x.T @ x
    inputs = {"x": x, "y": y, "ridge": ridge, "scale": np.eye(4) / (gram**2).sum()}
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    return _reals("least_squares", inputs, {"w": solution}, (1e-9, 1e-3))


def sgd_two_layers_case() -> Case[FleqProgram]:
    """One step of gradient descent on (v.relu(W x) - t)^2 / 2, by the formula of its gradients."""
    program = fleq_program("sgd_two_layers")
    w, v, x, t, rate = (program.values(program.memory, name)[0] for name in ("W", "v", "x", "t", "rate"))
    hidden = w @ x[:, 0]
    error = v[:, 0] @ np.maximum(hidden, 0) - t[0, 0]
    gradient_v = error * np.maximum(hidden, 0)
    gradient_w = np.outer(error * v[:, 0] * (hidden > 0), x[:, 0])
    return _reals("sgd_two_layers", {}, {"W": w - rate[0, 0] * gradient_w, "v": v[:, 0] - rate[0, 0] * gradient_v})


def largest_error(program: AnyProgram, memory: list[Any], answers: Mapping[str, Sequence[Any]]) -> float:
    """The largest difference between a memory and the known answers."""
    worst = 0.0
    for name, expected in answers.items():
        for found, wanted in zip(program.values(memory, name), expected, strict=True):
            if isinstance(wanted, int):
                worst = max(worst, float(abs(found - wanted)))
            else:
                worst = max(worst, float(np.abs(np.asarray(found) - _as_cell(wanted)).max()))
    return worst


def _as_cell(value: Any) -> Cell:
    return np.asarray(value, dtype=np.float64)

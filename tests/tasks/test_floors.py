import numpy as np
import pytest
import sklearn.linear_model
from sklearn.metrics import r2_score

from pipeline.tasks import linear
from pipeline.tasks.floors import floors, floors_with_notes
from pipeline.tasks.linear import RawInputs, Ridge
from pipeline.tasks.rules import first_id, length_level, lookup, mean_brightness
from pipeline.tasks.task import Block, Split, TaskData

RANDOM = np.random.default_rng(0)


def ids_task(rows: int = 1200, classes: int = 4) -> TaskData:
    """Ids whose first tells the label three times out of four."""
    inputs = RANDOM.integers(0, 12, (rows, 5)).astype(np.uint8)
    labels = np.where(RANDOM.random(rows) < 0.75, inputs[:, 0] % classes, RANDOM.integers(0, classes, rows))
    labels = labels.astype(np.uint8)[:, None]
    lengths = RANDOM.integers(1, 6, rows).astype(np.int32)
    cuts = {
        "train": slice(0, rows // 2),
        "validation": slice(rows // 2, 2 * rows // 3),
        "test": slice(2 * rows // 3, None),
    }
    splits = {name: Split.of(inputs[part], labels[part], lengths[part]) for name, part in cuts.items()}
    rules = {"first": lookup(first_id, 12, classes), "length": lookup(length_level, 32, classes)}
    return TaskData("ids", classes, 1, splits, {}, vocabulary=12, rules=rules)


def whole(split: Split) -> Block:
    return split.read(0, len(split))


def test_majority_and_rules_are_what_a_plain_count_gives() -> None:
    task = ids_task()
    train, test = whole(task.splits["train"]), whole(task.splits["test"])
    found = floors(task)
    majority = np.bincount(train.labels[:, 0]).argmax()
    assert found["majority class"] == pytest.approx(np.mean(test.labels == majority))
    right = 0
    for ids, label in zip(test.inputs, test.labels[:, 0], strict=True):
        same = train.labels[train.inputs[:, 0] == ids[0], 0]
        right += np.bincount(same).argmax() == label
    assert found["first"] == pytest.approx(right / len(test))
    assert found["linear model on raw inputs"] == pytest.approx(found["first"], abs=0.03)


def test_the_majority_is_taken_for_each_answer_alone() -> None:
    labels = np.array([[0, 1], [0, 1], [1, 0]], np.uint8)
    split = Split.of(np.zeros((3, 2, 1), np.uint8), labels)
    task = TaskData("patches", 2, 2, dict.fromkeys(("train", "validation", "test"), split), {})
    assert floors(task)["majority class"] == pytest.approx(4 / 6)


def test_an_unseen_key_gets_the_majority() -> None:
    train = Split.of(np.array([[1], [1], [2]], np.uint8), np.array([[3], [3], [0]], np.uint8))
    predict = lookup(first_id, 10, 4)(train)
    test = Block(np.array([[1], [2], [9]], np.uint8), np.zeros((3, 1), np.uint8))
    assert predict(test)[:, 0].tolist() == [3, 0, 3]


def test_brightness_levels_span_black_to_white() -> None:
    inputs = np.array([[[0, 0]], [[255, 255]], [[128, 127]]], np.uint8)
    assert mean_brightness(255)(Block(inputs, np.zeros((3, 1), np.uint8))).tolist() == [0, 31, 15]


@pytest.mark.parametrize(("rows", "values"), [(40, 90), (90, 40)])
@pytest.mark.parametrize("classes", [2, 3])
def test_ridge_is_the_textbook_solution_of_its_best_penalty(rows: int, values: int, classes: int) -> None:
    x = RANDOM.normal(size=(rows, values)).astype(np.float32)
    labels = RANDOM.integers(0, classes, (rows, 2))
    x_validation, validation = RANDOM.normal(size=(30, values)).astype(np.float32), RANDOM.integers(0, classes, (30, 2))
    model = Ridge.fit(x, labels, classes, x_validation, validation)
    targets = linear._targets(labels, classes)
    centred = targets - targets.mean(axis=0)
    scores, chosen = {}, 0.0
    for penalty in linear.RIDGE_PENALTIES:
        weights = np.linalg.solve(x.T @ x + penalty * rows * np.eye(values), x.T @ centred)
        candidate = Ridge(weights.astype(np.float32), targets.mean(axis=0), classes, 2)
        scores[penalty] = np.mean(candidate.predict(x_validation) == validation)
        if np.allclose(weights, model.weights, rtol=1e-2, atol=1e-4):
            chosen = penalty
    assert scores[chosen] == max(scores.values())


def test_raw_inputs_of_ids_are_counts_and_the_first_id_without_padding() -> None:
    inputs = np.array([[3, 3, 1, 0], [1, 0, 0, 0]], np.uint8)
    block = Block(inputs, np.zeros((2, 1), np.uint8), np.array([3, 1], np.int32))
    assert linear._values(block, np.array([1, 3])).tolist() == [[1, 2, 0, 1], [1, 0, 1, 0]]
    standardised = RawInputs.fit(block, 4)(block)
    assert standardised.mean(axis=0) == pytest.approx(0)


def test_the_linear_models_cost_is_bounded_and_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MOST_ROWS", 100)
    notes = floors_with_notes(ids_task())[1]["linear_floor"]
    assert notes == {"model": "logistic regression", "train_rows": 100, "validation_rows": 100}
    many = floors_with_notes(ids_task(classes=80))[1]["linear_floor"]
    assert many["model"] == "least squares"
    monkeypatch.setattr(linear, "MOST_NUMBERS", 24 * 50)
    assert floors_with_notes(ids_task())[1]["linear_floor"]["train_rows"] == 50


def test_a_sample_is_spread_over_a_sorted_split() -> None:
    labels = np.repeat(np.arange(10, dtype=np.uint8), 500)[:, None]
    sample = Split.of(np.zeros((5000, 1), np.uint8), labels).sample(100)
    assert np.bincount(sample.labels[:, 0]).tolist() == pytest.approx([10] * 10, abs=1)


@pytest.mark.parametrize("classes", [3, 80])
@pytest.mark.parametrize(("kind", "shape"), [("ids", (5,)), ("patches", (4, 2))])
def test_a_linear_model_needs_no_validation(kind: str, shape: tuple[int, ...], classes: int) -> None:
    def split(rows: int) -> Split:
        inputs = RANDOM.integers(0, 9, (rows, *shape)).astype(np.uint8)
        return Split.of(inputs, (np.arange(rows) % classes).astype(np.uint8)[:, None])

    splits = {"train": split(200), "validation": split(0), "test": split(20)}
    task = TaskData(kind, classes, 1, splits, {}, vocabulary=9 if kind == "ids" else None)  # pyright: ignore[reportArgumentType]
    found, notes = floors_with_notes(task)
    assert 0 <= found["linear model on raw inputs"] <= 1
    assert notes["linear_floor"]["validation_rows"] == 0


def numbers_task(rows: int = 300, answers: int = 2, validation: int = 60) -> TaskData:
    """Numbers on scales of their own that are linear in the inputs, with noise."""
    inputs = RANDOM.normal(size=(rows, 4, 3)).astype(np.float32)
    weights = RANDOM.normal(size=(12, answers)) * 10.0 ** np.arange(answers)
    noise = RANDOM.normal(size=(rows, answers)) * 10.0 ** np.arange(answers)
    labels = (inputs.reshape(rows, 12) @ weights + noise + 50).astype(np.float32)
    cuts = {"train": slice(100, rows), "validation": slice(0, validation), "test": slice(60, 100)}
    splits = {name: Split.of(inputs[part], labels[part]) for name, part in cuts.items()}
    return TaskData("patches", 0, 1, splits, {})


@pytest.mark.parametrize("validation", [0, 60])
@pytest.mark.parametrize("answers", [1, 2])
def test_floors_of_numbers_are_the_train_mean_and_ridge_regression(answers: int, validation: int) -> None:
    task = numbers_task(answers=answers, validation=validation)
    found, notes = floors_with_notes(task)
    train, held, test = (whole(task.splits[name]) for name in ("train", "validation", "test"))
    constant = np.broadcast_to(train.labels.mean(axis=0), test.labels.shape)
    assert found["train mean"] == pytest.approx(
        r2_score(test.labels, constant, multioutput="variance_weighted"), abs=1e-4
    )
    assert notes["floors_mse"]["train mean"] == pytest.approx(np.mean((constant - test.labels) ** 2), rel=1e-4)
    x, y, z = (block.inputs.reshape(-1, 12).astype(np.float64) for block in (train, held, test))
    mean, spread = x.mean(axis=0), x.std(axis=0)
    models = [
        sklearn.linear_model.Ridge(alpha=penalty * len(x)).fit((x - mean) / spread, train.labels)
        for penalty in linear.RIDGE_PENALTIES
    ]

    def guess(model: sklearn.linear_model.Ridge, rows: np.ndarray) -> np.ndarray:
        return model.predict((rows - mean) / spread).reshape(-1, answers)

    errors = [np.mean((guess(model, y) - held.labels) ** 2) if validation else 0.0 for model in models]
    guessed = guess(models[int(np.argmin(errors))], z)
    wanted = r2_score(test.labels, guessed, multioutput="variance_weighted")
    assert found["linear model on raw inputs"] == pytest.approx(wanted, abs=1e-4)
    assert notes["linear_floor"]["model"] == "least squares"


def test_numbers_that_do_not_vary_have_an_error_and_no_explained_variance() -> None:
    same = Split.of(np.zeros((4, 2, 1), np.uint8), np.full((4, 1), 0.1, np.float32))
    other = Split.of(np.zeros((4, 2, 1), np.uint8), np.array([[0.0], [1.0], [2.0], [3.0]], np.float32))
    found, notes = floors_with_notes(TaskData("patches", 0, 1, {"train": other, "validation": same, "test": same}, {}))
    assert found == {}
    assert notes["floors_mse"]["train mean"] == pytest.approx(1.4**2)
    found, _ = floors_with_notes(TaskData("patches", 0, 1, {"train": same, "validation": same, "test": other}, {}))
    explained = 1 - np.sum((np.arange(4) - 0.1) ** 2) / 5
    assert found == pytest.approx({"train mean": explained, "linear model on raw inputs": explained}, abs=1e-5)


def test_there_are_no_floors_without_test_or_train_and_one_class_has_one() -> None:
    empty = Split.of(np.zeros((0, 2, 1), np.uint8), np.zeros((0, 1), np.uint8))
    some = Split.of(np.zeros((4, 2, 1), np.uint8), np.zeros((4, 1), np.uint8))
    for train, test in ((empty, some), (some, empty)):
        task = TaskData("patches", 2, 1, {"train": train, "validation": some, "test": test}, {})
        assert floors(task) == {}
    alone = TaskData("patches", 1, 1, dict.fromkeys(("train", "validation", "test"), some), {})
    assert floors(alone) == {"majority class": 1.0, "linear model on raw inputs": 1.0}

"""A task on disk: one Zarr group a split, read by the cache and by the fine-tune.

Layout of `data/tokens/<task>/`: attributes of the root say how to read it; `train`, `validation` and `test` each hold
`inputs`, `(example, token, feature)` patches or `(example, token)` ids, `labels`, `(example, answer)`, and `content`,
`(example, 2)`, a hash of each input, in compact dtypes; where examples are of unequal length, padded on the right, also
`lengths` and `flags`, `(example,)`. `manifest.json` comes last and holds the floors, which no later stage's numbers
depend on, and what was counted on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from jaxtyping import Float, Integer, Num

from pipeline.identity import StaleArtifact, content_digest, read_manifest
from pipeline.problem import Problem, problem_of
from pipeline.tasks.task import SPLITS, STORED


@dataclass(frozen=True)
class TokenSplit:
    """One split as arrays on disk: slices are read when asked for.

    `lengths` count real tokens and are None where all examples are equally long; `flags` hold `TRUNCATED` and `EMPTY`
    of `pipeline.tasks.task`, None where there can be neither. Equal rows of `content` mean equal inputs.
    """

    inputs: zarr.Array
    labels: zarr.Array
    content: zarr.Array
    lengths: zarr.Array | None = None
    flags: zarr.Array | None = None

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def read_labels(self) -> Num[np.ndarray, "example answer"]:
        """All labels: class numbers, or numbers where the task is a regression."""
        return np.asarray(self.labels[:])

    def read_lengths(self) -> Integer[np.ndarray, " example"]:
        """Real tokens of every example."""
        if self.lengths is None:
            return np.full(len(self), self.inputs.shape[1], np.int32)
        return np.asarray(self.lengths[:])


@dataclass(frozen=True)
class Tokens:
    """A task read from disk; the attributes are those of `pipeline.tasks.task.TaskData`.

    `digest` identifies its content; `floors` are scores on test by name. Where `embedding` is "backbone" the ids
    are those of the backbone's own table, and `tokenizer` names backbone, folder, package and sha256. Where `augment`
    is not None the fine-tune changes train images as it goes, so that no cache of them can be made.
    """

    path: Path
    task: str
    kind: Literal["patches", "ids"]
    classes: int
    readout: int
    source: dict[str, Any]
    offset: float | list[float]
    scale: float | list[float]
    floors: dict[str, float]
    digest: str
    splits: dict[str, TokenSplit]
    vocabulary: int | None
    pad_id: int
    embedding: Literal["adapter", "backbone"]
    tokenizer: dict[str, Any] | None
    choices: dict[str, Any]
    label_names: list[int] | list[str] | None
    image: dict[str, int] | None
    augment: str | None
    manifest: dict[str, Any]

    @property
    def problem(self) -> Problem:
        """Whether answers are classes or numbers."""
        return problem_of(self.classes)

    @property
    def scores(self) -> int:
        """Numbers that an output layer gives at one token of the readout: one a class of each answer, or the answer."""
        return self.answers // self.readout * max(1, self.classes)

    @property
    def length(self) -> int:
        """Tokens of an example, with padding."""
        return self.splits["train"].inputs.shape[1]

    @property
    def features(self) -> int:
        """Numbers in a patch."""
        return self.splits["train"].inputs.shape[2]

    @property
    def answers(self) -> int:
        """Answers of an example: `answers // readout` for each token of the readout, the first token's first."""
        return self.splits["train"].labels.shape[1]

    def normalise(self, stored: Num[np.ndarray, "example token feature"]) -> Float[np.ndarray, "example token feature"]:
        """Stored patches as the numbers a backbone's adapter sees."""
        return (stored.astype(np.float32) - np.asarray(self.offset, np.float32)) * np.asarray(self.scale, np.float32)


def open_tokens(path: Path) -> Tokens:
    """Open a task that `write_tokens` wrote.

    Raises:
        StaleArtifact: there is none, or it was never finished, or an older version wrote it.
    """
    made_by = f"dvc repro prepare@{path.name}"
    manifest = read_manifest(path, made_by=made_by)
    root = zarr.open_group(path, mode="r")
    attributes: dict[str, Any] = dict(root.attrs)
    wanted = ("task", *STORED)
    missing = [name for name in wanted if name not in attributes]
    if missing:
        raise StaleArtifact(f"{path} was written by another version: it lacks {', '.join(missing)}", mend=made_by)
    return Tokens(
        path=path,
        digest=content_digest(manifest),
        floors=manifest["floors"],
        splits={name: _split(root, name) for name in SPLITS},
        manifest=manifest,
        **{name: attributes[name] for name in wanted},
    )


def _split(root: zarr.Group, name: str) -> TokenSplit:
    group = root[name]
    assert isinstance(group, zarr.Group)
    return TokenSplit(**dict(group.arrays()))

"""A backbone's own tokenizer: text to the ids of its embedding table."""

from __future__ import annotations

import importlib.util
import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from pydantic.dataclasses import dataclass

from pipeline.identity import file_sha256
from pipeline.params import STRICT
from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.labels import smallest_dtype
from pipeline.tasks.task import EMPTY, TRUNCATED

FILE = "tokenizer.json"


@dataclass(frozen=True, config=STRICT)
class TokenizerSource:
    """The tokenizer of the backbone that params.yaml calls `backbone`: `folder`, in an installed `package` or local.

    A `sha256` of its tokenizer.json is checked.
    """

    backbone: str
    folder: str
    package: str | None = None
    sha256: str | None = None

    def path(self) -> Path:
        """The folder that holds tokenizer.json.

        Raises:
            MissingSource: the package is not installed, or the folder has no tokenizer.json.
        """
        folder = Path(self.folder)
        if self.package is not None:
            spec = importlib.util.find_spec(self.package)
            if spec is None or not spec.submodule_search_locations:
                raise MissingSource(f"the package {self.package} is not installed", mend=f"install {self.package}")
            folder = Path(spec.submodule_search_locations[0]) / self.folder
        if not (folder / FILE).is_file():
            raise MissingSource(f"{folder} has no {FILE}", mend=f"put the {FILE} of {self.backbone} into {folder}")
        return folder


class TextTokenizer:
    """A fast tokenizer that keeps at most `max_tokens` of a text, special tokens included."""

    def __init__(self, source: TokenizerSource, max_tokens: int) -> None:
        """Load it.

        Raises:
            MissingSource: it is not there.
            BrokenSource: its file is not a tokenizer, or has another checksum than params.yaml says.
        """
        from tokenizers import Tokenizer

        folder = source.path()
        self.sha256 = file_sha256(folder / FILE)
        if source.sha256 not in (None, self.sha256):
            raise BrokenSource(f"{folder / FILE} has sha256 {self.sha256}, not {source.sha256}")
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(folder / FILE))
        except Exception as error:  # the library raises nothing more special
            raise BrokenSource(f"{folder / FILE} is not a tokenizer: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self.max_tokens = max_tokens
        self.special_tokens: int = self._tokenizer.num_special_tokens_to_add(False)
        self.vocabulary: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.dtype = smallest_dtype(self.vocabulary)
        self.pad_id = self._pad_id(folder)

    def _pad_id(self, folder: Path) -> int:
        """The id of the pad token, else of the end token (GPT-2 has no pad), else 0."""
        config = folder / "tokenizer_config.json"
        named = json.loads(config.read_bytes()) if config.is_file() else {}
        for name in ("pad_token", "eos_token"):
            token = named.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            number = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
            if number is not None:
                return number
        return 0

    def encode(self, texts: list[str]) -> tuple[np.ndarray, Int64[np.ndarray, " text"], UInt8[np.ndarray, " text"]]:
        """Ids of all texts one after the other, their lengths, and flags.

        A text that gives no token at all becomes one pad; it and one of special tokens only are flagged `EMPTY`.
        """
        encodings = self._tokenizer.encode_batch_fast(texts)
        rows = [encoding.ids or [self.pad_id] for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flags = np.zeros(len(rows), np.uint8)
        for row in np.flatnonzero(lengths == self.max_tokens):
            if encodings[row].overflowing:
                flags[row] = TRUNCATED
        for row in np.flatnonzero(lengths <= max(1, self.special_tokens)):
            if len(encodings[row].ids) <= self.special_tokens:
                flags[row] = EMPTY
        ids = np.fromiter(chain.from_iterable(rows), self.dtype, int(lengths.sum()))
        return ids, lengths, flags

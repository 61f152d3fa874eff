"""Programs whose code depends on their data, by the name and the `NAME=VALUES` that the command line gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.looped.isa import ProgramError, SubleqProgram
from pipeline.looped.library import fpt_tasks, lists
from pipeline.looped.library.listops import listops
from pipeline.params import nearest


@dataclass(frozen=True)
class Generator:
    """What a generated program does, the data it needs (with an example of each), and how it is made.

    `build` takes the data as text, by name, and the bits of a word.
    """

    what: str
    example: Mapping[str, str]
    build: Callable[[Mapping[str, str], int], SubleqProgram]


def integers(text: str) -> list[int]:
    """Integers apart by commas or spaces; ValueError for anything else."""
    return [int(word) for word in text.replace(",", " ").split()]


def _recall(data: Mapping[str, str], bits: int) -> SubleqProgram:
    keys, values = integers(data["keys"]), integers(data["values"])
    if len(keys) != len(values):
        raise ProgramError(f"{len(keys)} keys and {len(values)} values", mend="give as many values as keys")
    return fpt_tasks.recall(list(zip(keys, values, strict=True)), int(data["query"]), bits)


GENERATORS = {
    "reverse": Generator(
        "list := the list in reverse order", {"list": "3,1,2"}, lambda d, bits: lists.reverse(integers(d["list"]), bits)
    ),
    "sort": Generator(
        "list := the list in ascending order", {"list": "3,1,2"}, lambda d, bits: lists.sort(integers(d["list"]), bits)
    ),
    "search": Generator(
        "index := the first place of target in list, and found := 1",
        {"list": "3,1,2", "target": "1"},
        lambda d, bits: lists.search(integers(d["list"]), int(d["target"]), bits),
    ),
    "bit_xor": Generator(
        "out := x XOR y, bit by bit",
        {"x": "1,0,1,1,0", "y": "0,1,1,0,1"},
        lambda d, bits: fpt_tasks.bit_xor(integers(d["x"]), integers(d["y"]), bits),
    ),
    "recall": Generator(
        "out := the value whose key is query", {"keys": "3,9,-4", "values": "11,-22,33", "query": "9"}, _recall
    ),
    "listops": Generator(
        "out := the value of a ListOps expression",
        {"expression": "[MAX 2 [SM 7 8] [MED 1 9 4]]"},
        lambda d, bits: listops(d["expression"], bits),
    ),
}


def generate(name: str, settings: Mapping[str, str], word_bits: int | None) -> SubleqProgram:
    """The program `name` for the data in `settings`; what is not given is that of the example.

    Raises:
        ProgramError: data that the program does not have, or text that is not its kind.
    """
    generator = GENERATORS[name]
    for given in settings:
        if given not in generator.example:
            raise ProgramError(f"{name} has no data called {given!r}{nearest(given, list(generator.example))}")
    try:
        return generator.build({**generator.example, **settings}, word_bits or 16)
    except ValueError as error:
        raise ProgramError(f"{name}: {error}", mend="write integers apart by commas") from None

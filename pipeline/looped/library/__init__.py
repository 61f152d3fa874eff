"""Programs that come with the machines: files of program text, and builders where the code grows with the data."""

from __future__ import annotations

from pathlib import Path

from pipeline.looped.assembler import assemble
from pipeline.looped.fleq_assembler import assemble_fleq
from pipeline.looped.isa import FleqProgram, ProgramError, SubleqProgram
from pipeline.params import nearest

FOLDER = Path(__file__).parent


def program_files() -> dict[str, Path]:
    """The library's program files by name: `gcd.sub`, `inverse.fleq`, …"""
    return {path.name: path for path in sorted(FOLDER.iterdir()) if path.suffix in (".sub", ".fleq")}


def description(path: Path) -> str:
    """The comment on a program's first line."""
    return path.read_text(encoding="utf-8").splitlines()[0].lstrip("; ")


def read_program(path: Path, word_bits: int | None = None) -> SubleqProgram | FleqProgram:
    """Assemble a file: `.sub` is SUBLEQ, `.fleq` is FLEQ.

    Raises:
        ProgramError: no such file, or another suffix.
        AssemblyError: the text is not a program.
    """
    if not path.is_file():
        known = list(program_files())
        raise ProgramError(f"there is no program {path}{nearest(path.name, known)}", mend="`list` shows the library")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} is not text ({error})", mend="save it as UTF-8") from error
    if path.suffix == ".sub":
        return assemble(text, str(path), word_bits)
    if path.suffix == ".fleq" and word_bits is not None:
        raise ProgramError(f"{path.name} computes with real numbers, not words", mend="leave --word out")
    if path.suffix == ".fleq":
        return assemble_fleq(text, str(path))
    raise ProgramError(f"{path.name} is neither SUBLEQ nor FLEQ", mend="call the file NAME.sub or NAME.fleq")


def subleq_program(name: str, word_bits: int | None = None) -> SubleqProgram:
    """A SUBLEQ program of the library, without its suffix."""
    program = read_program(FOLDER / f"{name}.sub", word_bits)
    assert isinstance(program, SubleqProgram)
    return program


def fleq_program(name: str) -> FleqProgram:
    """A FLEQ program of the library, without its suffix."""
    program = read_program(FOLDER / f"{name}.fleq")
    assert isinstance(program, FleqProgram)
    return program

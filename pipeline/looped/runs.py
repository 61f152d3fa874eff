"""How a run of a batch of programs ended. A program that was stopped has a status, never a silent partial result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from torch import Tensor

from pipeline.errors import PermafrostError
from pipeline.looped.isa import AnyProgram
from pipeline.looped.model import Loop


class NotHalted(PermafrostError):
    """A program that was still running when its steps were used up."""


@dataclass(frozen=True)
class Run(Generic[AnyProgram]):
    """The end of a run; `decode` turns the final state into one memory a program."""

    loop: Loop[Tensor]
    programs: tuple[AnyProgram, ...]
    decode: Callable[[Tensor], list[list[Any]]]

    @property
    def steps(self) -> list[int]:
        """Instructions that each program executed before HALT, or until the limit."""
        return self.loop.steps.tolist()

    @property
    def status(self) -> list[str]:
        """`halted` or `step limit`, one a program."""
        return ["halted" if done else "step limit" for done in self.loop.halted.tolist()]

    def partial_memory(self) -> list[list[Any]]:
        """Each program's memory, also of those that the limit stopped."""
        memories = self.decode(self.loop.state)
        return [memory[: len(program.memory)] for memory, program in zip(memories, self.programs, strict=True)]

    def memory(self) -> list[list[Any]]:
        """Each program's memory: integers (SUBLEQ) or (size, size) float64 arrays (FLEQ).

        Raises:
            NotHalted: a program did not reach HALT within the step limit.
        """
        running = [index for index, status in enumerate(self.status) if status != "halted"]
        if running:
            others = f" (nor have {len(running) - 1} others of the batch)" if len(running) > 1 else ""
            raise NotHalted(
                f"program {running[0]} has not halted after {self.steps[running[0]]} steps{others}",
                mend="raise the step limit (--max-steps), or look for its endless loop with a trace (--trace)",
            )
        return self.partial_memory()

    def values(self, name: str, program: int = 0) -> list[Any]:
        """The data called `name` in the final memory of one program of the batch; raises like `memory`."""
        return self.programs[program].values(self.memory()[program], name)

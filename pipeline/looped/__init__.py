"""The looped transformer: a frozen transformer that is programmed instead of trained.

    program = assemble(text)
    machine = SubleqMachine.for_programs([program])
    machine.run([program]).values("product")

Source: "Looped Transformers as Programmable Computers" (arXiv 2301.13196). Start reading at `subleq.py`.
"""

from pipeline.looped.assembler import assemble
from pipeline.looped.fleq import FleqMachine
from pipeline.looped.fleq_assembler import assemble_fleq
from pipeline.looped.isa import FleqProgram, SubleqProgram
from pipeline.looped.layout import Sizes
from pipeline.looped.model import LoopedTransformer
from pipeline.looped.oracle import run_fleq, run_subleq
from pipeline.looped.subleq import SubleqMachine

__all__ = [
    "FleqMachine",
    "FleqProgram",
    "LoopedTransformer",
    "Sizes",
    "SubleqMachine",
    "SubleqProgram",
    "assemble",
    "assemble_fleq",
    "run_fleq",
    "run_subleq",
]

"""Every task by the `kind` that params.yaml names. A new task is one module here and one name in `TaskSettings`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.params import Params
from pipeline.tasks.arrays import Arrays
from pipeline.tasks.bit_memory import BitMemory
from pipeline.tasks.bit_xor import BitXor
from pipeline.tasks.cifar10 import Cifar10
from pipeline.tasks.digits import Digits
from pipeline.tasks.homology import RemoteHomology
from pipeline.tasks.listops import ListOps
from pipeline.tasks.looped_states import LoopedStates
from pipeline.tasks.mnist import Mnist
from pipeline.tasks.protein_regression import ProteinRegression
from pipeline.tasks.text import Text

Images = Digits | Mnist | Cifar10
Proteins = RemoteHomology | ProteinRegression
TaskSettings = BitMemory | BitXor | ListOps | Images | Proteins | Text | Arrays | LoopedStates


def task_settings(params: Params, name: str) -> TaskSettings:
    """The checked settings of the task `name`, ready to `load()`.

    Raises:
        ParamsError: params.yaml has no such task, or its entry is not valid.
    """
    return params.entry("tasks", name, Annotated[TaskSettings, Field(discriminator="kind")])

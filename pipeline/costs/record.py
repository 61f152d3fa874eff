"""What a stage cost, by the clock and by count; kept apart from results, which must not depend on a clock."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.identity import write_json


@dataclass(frozen=True)
class MethodCost:
    """What one of several methods of a stage cost, reading its inputs and all that it was chosen from included.

    Fields are as in `CostRecord`; `flops_per_epoch` is the count of what `seconds_per_epoch` measures.
    """

    seconds: float
    flops: int
    seconds_per_epoch: float | None
    flops_per_epoch: int | None = None


@dataclass(frozen=True)
class CostRecord:
    """The cost of one stage for one artifact.

    `seconds` is the work itself, without interpreter start and imports; `seconds_per_epoch` is one more pass over the
    training examples once everything is set up, and None where the stage has no epochs; `flops` is counted, not
    measured; `peak_bytes` is the process's largest resident memory, `peak_device_bytes` the most that torch held on a
    CUDA device. `tokens` went through the backbone, pads left out, None where there is none. `joules` is what this
    machine used while the stage ran, None where that cannot be measured. Where a stage runs several methods,
    `methods` has each one's cost; the record is of the whole stage, but for `seconds_per_epoch`, the first method's.
    """

    stage: str
    key: str
    seconds: float
    flops: int
    peak_bytes: int
    device: str
    examples: int
    seconds_per_epoch: float | None = None
    methods: dict[str, MethodCost] = field(default_factory=dict)
    tokens: int | None = None
    joules: float | None = None
    peak_device_bytes: int | None = None

    def write(self, folder: Path) -> None:
        """Write `folder/<stage>-<key>.json`."""
        write_json(folder / f"{self.stage}-{self.key}.json", asdict(self))


class Clock:
    """Seconds since it was made, or since `measuring` was entered."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Add the time of the block to `seconds`, also when it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


def peak_memory_bytes() -> int:
    """The largest resident memory of this process so far.

    On Linux by /proc: what `getrusage` says is inherited, and starts at the parent's.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

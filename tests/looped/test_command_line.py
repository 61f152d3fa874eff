"""`python -m pipeline.looped` and the programs stage, as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from pipeline.looped import trace as tracing
from pipeline.looped.__main__ import main
from pipeline.looped.flops import LayerShape, pass_flops
from pipeline.looped.library.catalog import Case, subleq_cases
from pipeline.looped.subleq import SubleqMachine
from pipeline.looped.suite import library_row, task_rows
from stages.programs import main as programs


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_run_prints_the_result_and_the_trace() -> None:
    result = call("run", "multiply.sub", "--set", "a=7", "--set", "b=2", "--trace")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["loop", "pc", "next", "instruction", "a", "b", "product", "minus_a", "minus_b", "one"]
    assert lines[3].split() == ["2", "2", "subleq", "minus_a", "product", "7", "2", "0", "-7", "0", "1"]
    assert "product = 14" in lines
    assert lines[-1] == "halted after 7 steps"


def test_run_takes_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.sub"
    path.write_text(".data\nlist: 1 2 3\n.code\nsubleq list list+2\n")
    result = call("run", str(path), "--set", "list=5,1,9")
    assert "list = 5 1 4" in result.output


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["sort", "--set", "list=4,-1,3"], "list = -1 3 4"),
        (["reverse"], "list = 2 1 3"),
        (["search", "--set", "target=2"], "index = 2"),
        (["bit_xor", "--set", "x=1,1", "--set", "y=1,0"], "out = 0 1"),
        (["recall", "--set", "query=-4"], "out = 33"),
        (["listops", "--set", "expression=[MIN 4 [SM 9 9]]"], "out = 4"),
    ],
)
def test_run_makes_programs_for_their_data(arguments: list[str], line: str) -> None:
    assert line in call("run", *arguments).output.splitlines()


def test_run_takes_real_numbers() -> None:
    result = call("run", "transpose.fleq", "--set", "a=1,2/3,4", "--trace")
    assert "b = 1 3 / 2 4" in result.output
    assert "tr a b" in result.output


def test_attention_picture_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "heads.png"
    assert call("run", "add.sub", "--attention", "2", str(path)).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    result = call("run", "add.sub", "--attention", "9", str(path))
    assert result.exit_code == 1
    assert "there is no loop 9: the run has 4" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ad.sub"], 1, "did you mean 'add.sub'"),
        (["add.sub", "--set", "x=999"], 1, "x = 999 is outside -128 … 127"),
        (["add.sub", "--set", "x=one"], 1, "write integers apart by commas"),
        (["add.sub", "--set", "x"], 1, "has no ="),
        (["add.sub", "--set", "q=1"], 1, "no data called 'q'"),
        (["transpose.fleq", "--set", "a=1,2/3"], 1, "rows of different lengths"),
        (["transpose.fleq", "--dtype", "float16"], 1, "use torch.float64"),
        (["transpose.fleq", "--word", "8"], 1, "computes with real numbers, not words"),
        (["sort", "--set", "list=1,b"], 1, "write integers apart by commas"),
        (["sort", "--set", "lst=1"], 1, "did you mean 'list'"),
        (["recall", "--set", "keys=1"], 1, "1 keys and 3 values"),
        (["listops", "--set", "expression=[MAX"], 1, "MAX in '[MAX' has no arguments or no end"),
        (["power.sub", "--max-steps", "5"], 3, "has not halted after 5 steps"),
        (["add.sub", "--set", "x=1", "--set", "x=2"], 1, "gives x twice"),
        (["transpose.fleq", "--set", "a=one"], 1, "write numbers apart by commas"),
        (["add.sub", "--attention", "0", "/dev/null/picture.png"], 1, "error: cannot write /dev/null"),
        (["divide.fleq", "--set", "y=5"], 1, "look with a trace (--trace) for what diverges"),
        (["divide.fleq", "--set", "a=1e300"], 1, "the largest a cell holds"),
        (["matrix_product.fleq", "--set", "a=30000"], 1, "away from the interpreter"),
        (["list_sum.fleq", "--set", "n=30"], 1, "load from cell"),
        (["add.sub", "--word", "1"], 2, "Invalid value for '--word'"),
    ],
)
def test_mistakes_have_a_message_and_an_exit_code(arguments: list[str], code: int, message: str) -> None:
    result = call("run", *arguments)
    assert result.exit_code == code
    assert message in result.output


def test_what_went_wrong_can_be_traced() -> None:
    """The table comes before the error."""
    result = call("run", "divide.fleq", "--set", "y=5", "--trace")
    assert result.exit_code == 1
    assert len(result.output.split("error:")[0].strip().splitlines()) > 3


def test_results_that_wrap_around_are_counted() -> None:
    too_large = ("add.sub", "--set", "x=100", "--set", "y=100")
    result = call("run", *too_large)
    assert "y = -56" in result.output
    assert "results that wrapped around words of 8 bits: 1 (--word" in result.output
    assert "wrapped" not in call("run", *too_large, "--word", "9").output


def test_the_distance_from_the_interpreter_is_printed() -> None:
    last = call("run", "transpose.fleq").output.splitlines()[-1]
    assert last == "halted after 1 steps; within 0.0e+00 of the interpreter"


def test_files_of_other_systems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.sub"
    path.write_bytes("\ufeff.data\r\nx: 5\r\n.code\r\nsubleq x x\r\n".encode())
    assert "x = 0" in call("run", str(path)).output


@pytest.mark.usefixtures("_no_shape_checks")
def test_programs_of_many_columns_run_on_the_fast_path_with_the_same_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = call("run", "multiply.sub", "--set", "b=3", "--trace").output
    monkeypatch.setattr(tracing, "DENSE_COLUMNS", 17)
    assert call("run", "multiply.sub", "--set", "b=3", "--trace").output == dense
    refused = call("run", "matrix_product.fleq")
    assert refused.exit_code == 1
    assert "takes 28 columns, of 17 here" in refused.output


def test_a_picture_of_too_many_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.sub"
    path.write_text(".data\nx: 1\n.code\n" + "subleq x x\n" * 600)
    result = call("run", str(path), "--max-steps", "3", "--attention", "0", str(tmp_path / "picture.png"))
    assert "a picture of 604 columns cannot be read" in result.output


def test_list_and_show() -> None:
    assert "gcd.sub" in call("list").output
    assert call("show", "gcd.sub").output.startswith("; a := the greatest common divisor")
    assert call("show", "nothing.sub").exit_code == 1


def test_row_of_a_wrong_answer_is_not_correct() -> None:
    case = subleq_cases()["add"]
    machine = SubleqMachine.for_programs([case.program])
    run = machine.run([case.program])
    row = library_row("add", case, machine, run, 3)
    assert (row["correct"], row["steps"], row["layers"], row["width"], row["dtype"]) == (True, 3, 4, 78, "float32")
    wrong = library_row("add", Case(case.program, {"y": [-14]}), machine, run, 3)
    assert (wrong["correct"], wrong["largest_error"]) == (False, 1.0)
    assert not library_row("add", case, machine, run, 4)["correct"], "another number of steps than the interpreter's"


@pytest.mark.slow
def test_stage_writes_metrics_plot_and_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(programs, catch_exceptions=False)
    assert result.exit_code == 0
    rows = json.loads((tmp_path / "metrics/programs.json").read_text())
    assert {"name", "correct", "steps", "layers", "width", "dtype", "largest_error"} <= rows[0].keys()
    assert all(row["correct"] for row in rows)
    assert (tmp_path / "data/programs/errors.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "data/cost/programs-all.json").read_text())["flops"] > 0


@pytest.mark.slow
def test_tasks_of_fpt_are_solved_without_training() -> None:
    rows = {row["name"]: row for row in task_rows()}
    assert {name: row["accuracy"] for name, row in rows.items()} == {"bit_xor": 1, "bit_memory": 1, "listops": 1}
    assert all(row["flops_per_example"] > 0 for row in rows.values())


def test_flops_of_a_pass_by_hand() -> None:
    layer = LayerShape(heads=2, score=3, rank=4, hidden=5)
    n, d = 7, 11
    by_hand = 2 * (2 * n * d * 3 * 2 + 2 * n * d * 4 * 2 + 2 * n * n * 3 + 2 * n * n * 4) + 2 * n * d * 5 * 2
    assert pass_flops(n, d, [layer]) == by_hand


@pytest.mark.slow
def test_flops_agree_with_torchs_own_counter() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from pipeline.looped.flops import layer_shapes

    case = subleq_cases()["add"]
    machine = SubleqMachine.for_programs([case.program])
    x = machine.encode([case.program])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        machine.network(x)
    expected = pass_flops(machine.sizes.columns, machine.layout.width, layer_shapes(machine.network))
    assert counter.get_total_flops() == expected


def test_importing_the_stage_imports_no_torch() -> None:
    check = "import sys, stages.programs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0

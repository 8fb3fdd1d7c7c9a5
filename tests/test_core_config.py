import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import nbformat
import numpy as np
import papermill
import pytest
from conftest import ROOT
from hypothesis import given, strategies as st
from pydantic import Field

from complearn.core.config import _whole_number, check_choice, check_parameters, parse_list, parse_yaml, strict
from complearn.core.files import read_json
from complearn.core.plugins import Registry


def test_a_registry_names_what_it_holds():
    colours = Registry("colour")
    assert colours.register("red")(len) is len
    assert colours["red"] is len
    assert list(colours) == ["red"]
    assert len(colours) == 1
    assert "blue" not in colours and colours.get("blue") is None and dict(colours) == {"red": len}
    with pytest.raises(ValueError, match=r"no colour 'rad' \(did you mean 'red'\?\); there are red"):
        colours["rad"]
    with pytest.raises(ValueError, match="no colour 'x'; there are none yet"):
        Registry("colour")["x"]


def test_a_value_that_is_no_choice_names_the_choices():
    assert check_choice("fit", "crop", iter(("crop", "pad"))) is None
    with pytest.raises(ValueError, match=r"no fit 'pat' \(did you mean 'pad'\?\); there are crop, pad"):
        check_choice("fit", "pat", iter(("crop", "pad")))


def test_a_name_is_not_taken_twice_but_a_cell_may_be_run_again():
    colours = Registry("colour")
    colours.register("red")(strict)
    with pytest.raises(ValueError, match="colour 'red' is defined in complearn.core.config already"):
        colours.register("red")(test_a_registry_names_what_it_holds)
    colours.register("red")(strict)

    def cell(): ...

    cell.__module__ = "__main__"
    colours.register("red")(cell)
    assert colours["red"] is cell


@dataclass(frozen=True)
class Inner:
    lr: Annotated[float, Field(gt=0)] = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    ema: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    steps: Annotated[int, Field(ge=1)] = 1
    inner: Inner = Inner()
    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.name == "bad":
            raise ValueError("name cannot be 'bad'")


def test_plain_values_become_a_frozen_tree():
    read = strict(Outer, {"name": "a", "inner": {"lr": 1, "betas": [0.5, 0.9]}, "args": {"x": [1, None]}}, "config")
    assert read == Outer("a", 1, Inner(1.0, (0.5, 0.9)), {"x": [1, None]}) and strict(Outer, read, "config") is read
    assert strict(Outer, {"name": "a", "steps": np.int64(3), "inner": Inner(2.0)}, "config") == Outer(
        "a", 3, Inner(2.0)
    )


@pytest.mark.parametrize(
    "values, message",
    [
        (
            {"name": "a", "stps": 2},
            r"no config key 'stps' \(did you mean 'steps'\?\); there are name, steps, inner, args",
        ),
        ({"name": "a", "inner": {"rate": 2}}, r"no config.inner key 'rate'; there are lr, betas, ema"),
        ({}, "config.name is missing"),
        ({"name": 3}, "config.name should be a valid string, not 3"),
        ({"name": "a", "steps": "2"}, "config.steps should be a valid integer, not '2'"),
        ({"name": "a", "steps": True}, "config.steps should be a valid integer, not True"),
        ({"name": "a", "steps": 0}, "config.steps should be greater than or equal to 1, not 0"),
        ({"name": "a", "inner": {"lr": "5e-4"}}, "config.inner.lr should be a valid number, not '5e-4'"),
        ({"name": "a", "inner": {"betas": [1]}}, r"config.inner.betas.1 is missing"),
        ({"name": "a", "inner": 3}, "config.inner should be a mapping with the keys lr, betas, ema, not 3"),
        ({"name": "bad"}, "config: name cannot be 'bad'"),
        (3, "config should be a mapping with the keys name, steps, inner, args, not 3"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_expected(values, message):
    with pytest.raises(ValueError, match=message):
        strict(Outer, values, "config")


def test_all_mistakes_are_named_at_once():
    with pytest.raises(ValueError, match="config.name is missing.*config.inner.lr.*config.inner.ema"):
        strict(Outer, {"inner": {"lr": -1, "ema": "x"}}, "config")


@given(st.lists(st.integers(-999, 999)))
def test_lists_of_numbers_survive_the_command_line(values):
    for text in (
        str(values),
        json.dumps(values),
        ",".join(map(str, values)),
        tuple(values),
        np.array(values, dtype=int),
    ):
        assert parse_list(text, "seeds") == values == parse_list(text, "seeds", int)


@given(
    st.lists(
        st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True).filter(lambda word: word not in ("null", "true", "false")),
        min_size=1,
    )
)
def test_lists_of_words_survive_the_command_line(values):
    for text in (str(values), json.dumps(values), ",".join(values), f"[{', '.join(values)}]", values):
        assert parse_list(text, "methods") == values


def test_a_list_of_the_wrong_type_names_its_parameter():
    assert (
        parse_list(["0", 1.0], "seeds", int) == [0, 1]
        and parse_list(None, "seeds", int) == []
        and parse_list("my_file:mine", "x") == ["my_file:mine"]
    )
    with pytest.raises(ValueError, match=r"parameter seeds should be a list of int, not \['a'\]"):
        parse_list("a", "seeds", int)


def test_a_mapping_parameter_arrives_in_any_form_or_names_itself():
    assert parse_yaml({"a": 1}, "x") == {"a": 1}
    assert parse_yaml("tiny", "vision") == "tiny"
    assert parse_yaml("", "x") == ""
    assert (
        parse_yaml(' {"a": [1, 2]} ', "x")
        == parse_yaml("{'a': [1, 2]}", "x")
        == parse_yaml("{a: [1, 2]}", "x")
        == {"a": [1, 2]}
    )
    for broken in ('{"a": 1', '{"a": ]}', '{"a" 1}', "[1, 2"):
        with pytest.raises(ValueError, match="parameter data_args cannot be read"):
            parse_yaml(broken, "data_args")


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=126))
)


@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1), LEAVES | st.lists(LEAVES), max_size=4
    )
)
def test_json_and_python_are_read_as_they_are_written(values):
    assert parse_yaml(json.dumps(values), "x") == values
    assert parse_yaml("{lr: 5e-4, on: no, day: 2020-01-01, time: 1:30, octal: 010}", "x") == {
        "lr": 5e-4, "on": "no", "day": "2020-01-01", "time": "1:30", "octal": "010"
    }  # fmt: skip
    assert parse_yaml(str({"a": None, "b": True, "c": 1e-05}), "x") == {"a": None, "b": True, "c": 1e-05}


def test_a_parameter_that_the_notebook_does_not_have_is_refused():
    defaults = 'preset = "smoke"  # dial\nseeds: list = []\nsteps = 0'
    check_parameters([])
    check_parameters(["", defaults, "print(1)", "# Parameters of nothing\nstep = 1"])
    check_parameters(["", defaults, '# Parameters\npreset = "demo"\nseeds = [0, 1]\n', "x = 1"])
    with pytest.raises(
        ValueError, match=r"no parameter 'step' \(did you mean 'steps'\?\); there are preset, seeds, steps"
    ):
        check_parameters(["", defaults, '# Parameters\npreset = "demo"\nstep = 3\n', "x = 1"])


@pytest.mark.parametrize("value", [8.5, "8.5", "eight", True, None, "", float("nan"), float("inf"), [8], "1e3"])
def test_what_is_no_whole_number_is_refused_where_one_is_declared(value):
    "`-p batch_size 8.5` trained with 8."
    message = f"parameter size should be a whole number, not {value!r}; write e.g. -p size 8"
    with pytest.raises(ValueError, match=re.escape(message)):
        _whole_number(value, "size")
    with pytest.raises(ValueError, match="parameter sizes should be a list of int, not"):
        parse_list([1, value], "sizes", int)


@pytest.mark.parametrize("value", [8, -8, 8.0, "8", " 8 ", "8.0", np.int64(8), 0])
def test_a_whole_number_is_taken_in_any_form(value):
    assert _whole_number(value, "size") == int(float(value)) and type(_whole_number(value, "size")) is int


def test_a_parameter_declared_as_a_whole_number_is_checked_before_a_notebook_runs():
    defaults = 'preset: str = "smoke"\nsize: int = 128  # of a batch\nlr: float = 0.1\nseeds: list = []'
    for good in ("size = 8", "size = -1", 'size = "8"', "lr = 8.5", "seeds = [0.5]"):
        check_parameters([defaults, f"# Parameters\n{good}\n"])
    for wrong in ("size = 8.5", "size = -0.5", 'size = "many"', "size = None", "size = True"):
        with pytest.raises(ValueError, match="parameter size should be a whole number, not"):
            check_parameters([defaults, f'# Parameters\npreset = "demo"\n{wrong}\n'])


def test_a_parameter_of_another_kind_is_named_before_a_notebook_runs():
    "`-p allow_outside false` arrived as a text, which counts as true; `-p lr True` trained at a rate of 1."
    defaults = 'allow_outside: bool = False\nlr: float = 0.1\nout_dir: str = ""'
    for good in ("allow_outside = True", "lr = 3", 'lr = "5e-4"', "out_dir = 2024"):
        check_parameters([defaults, f"# Parameters\n{good}\n"])
    wrong = {
        'allow_outside = "false"': "parameter allow_outside should be True or False, not 'false'",
        "allow_outside = 1": "parameter allow_outside should be True or False, not 1",
        "lr = True": "parameter lr should be a number, not True",
        'lr = "fast"': "parameter lr should be a number, not 'fast'",
    }
    for line, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            check_parameters([defaults, f"# Parameters\n{line}\n"])
    with pytest.raises(ValueError, match=r"parameter seeds should be a list of int, not \[1, 2.5\]"):
        parse_list("[1, 2.5]", "seeds", int)


def notebooks() -> list[Path]:
    return [
        *sorted((ROOT / "nbs" / "experiments").glob("*.ipynb")),
        *sorted((ROOT / "nbs" / "benchmarks").glob("*.ipynb")),
    ]


def test_every_notebook_with_parameters_checks_them_where_it_imports():
    unchecked = []
    for path in notebooks():
        cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        place = next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", []))
        if "check_parameters()" not in cells[place + 1].source.splitlines():
            unchecked.append(path.relative_to(ROOT).as_posix())
    assert len(notebooks()) > 20 and not unchecked, (
        f"the cell after the parameters does not call check_parameters() in {unchecked}"
    )


@pytest.mark.slow
def test_papermill_stops_at_a_mistyped_parameter(tmp_path):
    with pytest.raises(papermill.PapermillExecutionError, match="no parameter 'presett' .did you mean 'preset'"):
        papermill.execute_notebook(
            ROOT / "nbs/experiments/claims.ipynb", tmp_path / "out.ipynb", {"presett": "demo"}, kernel_name="python3"
        )


def test_a_key_that_stands_twice_is_an_error_in_files_and_in_parameters(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 0, "train": {"steps": 1, "steps": 2}}')
    with pytest.raises(
        ValueError, match="config.json is not readable as JSON: the key 'steps' stands twice in one object .leave one."
    ):
        read_json(tmp_path / "config.json")
    with pytest.raises(ValueError, match="parameter world cannot be read near .*: the key 'shapes' stands twice"):
        parse_yaml('{"shapes": 3, "size": 8, "shapes": 4}', "world")
    assert parse_yaml('{"a": {"b": 1}, "b": {"b": 2}}', "world") == {"a": {"b": 1}, "b": {"b": 2}}

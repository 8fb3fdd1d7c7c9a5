import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from complearn.core.checksums import SEAL, document_sum
from complearn.core.files import BadData
from complearn.core.own_files import ForeignFile
from complearn.core.results import COLUMNS, Result, code_version, row, rows_table, versions

ROW = {
    "method": "clip",
    "seed": 0,
    "phase": "train",
    "step": 10,
    "data": "generated",
    "split": "swap_att",
    "metric": "accuracy",
    "value": 0.5,
}


def test_a_row_holds_plain_values_in_the_order_of_the_schema():
    made = row(**{**ROW, "seed": np.int64(0), "value": np.float32(0.5)}, low=np.float64(0.4), n=np.int32(7))
    assert list(made) == list(COLUMNS) and json.loads(json.dumps(made)) == made
    assert {key: type(made[key]) for key in ("seed", "value", "low", "n")} == {
        "seed": int,
        "value": float,
        "low": float,
        "n": int,
    }
    assert made["high"] is None and made["ties"] is None
    assert row(**{**ROW, "value": float("nan")})["value"] is None


def test_results_survive_the_file(tmp_path):
    rows = [row(**ROW), row(**{**ROW, "seed": None, "value": None})]
    path = Result({"preset": "smoke"}, rows, {"clip": {"swap_att": 0.5}}).write(tmp_path)
    assert path == tmp_path / "results.json"
    for place in (tmp_path, path, str(path)):
        results = Result.read(place)
        assert results.rows == rows
        assert results.methods == {"clip": {"swap_att": 0.5}}
        assert not results.curves and not results.tables
    assert results.setting["preset"] == "smoke" and results.setting["code"] == code_version()
    assert results.setting["versions"] == versions() and "torch" in versions()
    table = rows_table(results.rows)
    assert table.columns.tolist() == list(COLUMNS) and len(table) == 2
    assert rows_table([]).columns.tolist() == list(COLUMNS)


def test_a_file_without_the_columns_that_came_later_is_read(tmp_path):
    path = Result({}, [row(**ROW, groups=30)]).write(tmp_path)
    assert Result.read(path).rows[0]["groups"] == 30
    stored = json.loads(path.read_text())
    del stored["rows"][0]["groups"], stored["sha256"]  # as older versions wrote it
    path.write_text(json.dumps(stored))
    assert Result.read(path).rows == [row(**ROW)]


def test_wrong_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"row 1 of the results lacks \['ties'\] and has unknown \['tied'\]"):
        Result(
            {}, [row(**ROW), {("tied" if key == "ties" else key): value for key, value in row(**ROW).items()}]
        ).write(tmp_path)
    assert not (tmp_path / "results.json").exists()


def test_another_schema_and_a_missing_file_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.json does not exist; an experiment writes it"):
        Result.read(tmp_path)
    Result({}, []).write(tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(
        json.dumps({**stored, SEAL: document_sum({**stored, "schema": 99}), "schema": 99})
    )
    with pytest.raises(ValueError, match="has schema 99, and this version reads schema 1"):
        Result.read(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="has schema None"):
        Result.read(tmp_path)


def test_the_code_version_is_the_same_in_another_process_and_follows_the_source(tmp_path, monkeypatch):
    code = "from complearn.core.results import code_version; print(code_version())"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert told == code_version()
    import complearn

    (tmp_path / "__init__.py").write_text("a = 1\n")
    monkeypatch.setattr(complearn, "__file__", str(tmp_path / "__init__.py"))
    first = code_version.__wrapped__()
    (tmp_path / "__init__.py").write_text("a = 2\n")
    assert first != code_version.__wrapped__() != code_version()


CURVE = pd.DataFrame({"method": ["clip"] * 3, "step": [1, 2, 3], "loss": np.float32([3, 2, 1])})


def test_curves_and_tables_lie_next_to_the_file_and_come_back(tmp_path):
    words = pd.DataFrame({"code": [4], "words": ["red"]}, index=[7])
    path = Result({}, [row(**ROW)], {}, {"steps": CURVE}, {"codes": words}).write(tmp_path / "iterated.results.json")
    files = sorted(file.name for file in tmp_path.glob("*.parquet"))
    assert [name.rsplit(".", 2)[0] for name in files] == [
        "iterated.results.curves.steps",
        "iterated.results.tables.codes",
    ]
    back = Result.read(path)
    assert back.curves["steps"].equals(CURVE)
    assert back.tables["codes"].equals(words.reset_index(drop=True))
    back.write(path)
    assert sorted(file.name for file in tmp_path.glob("*.parquet")) == files
    with pytest.raises(ValueError, match="cannot be a file's name"):
        Result({}, [], {}, {"../steps": CURVE}).write(path)


def test_older_curves_are_deleted_after_the_new_result_stands_and_nothing_else_is(tmp_path):
    path = Result({}, [], {}, {"steps": CURVE}).write(tmp_path)
    mine = tmp_path / "results.curves.steps.00000000.parquet"
    mine.write_text("not of this result")
    Result({}, [], {}, {"steps": CURVE[:2]}).write(path)
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    stored = json.loads(path.read_text())
    (tmp_path / "thesis.tex").write_text("thesis")
    stored["files"]["curves"]["steps"]["file"] = "thesis.tex"
    path.write_text(json.dumps({**stored, SEAL: document_sum(stored)}))
    Result({}, []).write(path)
    assert (tmp_path / "thesis.tex").exists() and mine.exists()


def test_damaged_missing_and_foreign_curves_are_named(tmp_path):
    path = Result({}, [], {}, {"steps": CURVE}).write(tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] + b"xxxxx")
    with pytest.raises(BadData, match="was changed or damaged"):
        Result.read(path)
    file.unlink()
    with pytest.warns(UserWarning, match="is missing, which .* names: steps is left out"):
        assert not Result.read(path).curves
    (tmp_path / "elsewhere").write_bytes(whole)
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ForeignFile):
        Result.read(path)
    stored = json.loads(path.read_text())
    stored["files"]["curves"]["steps"]["file"] = "../steps.parquet"
    path.write_text(json.dumps({**stored, SEAL: document_sum(stored)}))
    with pytest.raises(ForeignFile, match="leads out of"):
        Result.read(path)


def test_a_frame_of_too_many_cells_is_not_read(tmp_path):
    frame = pd.DataFrame({f"c{k}": pd.Series(np.zeros(1_000_001, dtype="int8")) for k in range(51)})
    path = Result({}, [], {}, {}, {"wide": frame}).write(tmp_path)
    with pytest.raises(BadData, match="1,000,001 rows of 51 columns"):
        Result.read(path)

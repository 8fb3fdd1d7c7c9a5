import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

from complearn.core.results import COLUMNS, code_version, read_results, row, rows_table, versions, write_results

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
    path = write_results(tmp_path, {"preset": "smoke"}, {"clip": {"swap_att": 0.5}}, rows)
    assert path == tmp_path / "results.json"
    for place in (tmp_path, path, str(path)):
        results = read_results(place)
        assert set(results) == {"schema", "setting", "methods", "rows"} and results["rows"] == rows
    assert results["setting"]["preset"] == "smoke" and results["setting"]["code"] == code_version()
    assert results["setting"]["versions"] == versions() and "torch" in versions()
    table = rows_table(results["rows"])
    assert table.columns.tolist() == list(COLUMNS) and len(table) == 2
    assert rows_table([]).columns.tolist() == list(COLUMNS)


def test_a_file_without_the_columns_that_came_later_is_read(tmp_path):
    path = write_results(tmp_path, {}, {}, [row(**ROW, groups=30)])
    assert read_results(path)["rows"][0]["groups"] == 30
    stored = json.loads(path.read_text())
    del stored["rows"][0]["groups"]
    path.write_text(json.dumps(stored))
    assert read_results(path)["rows"] == [row(**ROW)]


def test_wrong_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"row 1 of the results lacks \['ties'\] and has unknown \['tied'\]"):
        write_results(
            tmp_path,
            {},
            {},
            [row(**ROW), {("tied" if key == "ties" else key): value for key, value in row(**ROW).items()}],
        )
    assert not (tmp_path / "results.json").exists()


def test_another_schema_and_a_missing_file_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.json does not exist; an experiment writes it"):
        read_results(tmp_path)
    write_results(tmp_path, {}, {}, [])
    stored = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({**stored, "schema": 99}))
    with pytest.raises(ValueError, match="has schema 99, and this version reads schema 1"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="has schema None"):
        read_results(tmp_path)


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

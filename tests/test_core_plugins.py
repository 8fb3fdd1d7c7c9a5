"""Parts of other packages and of files: found by name, allowed by a person, handed on to other processes."""

import os
import subprocess
import sys

import pytest

import complearn
from complearn.core import plugins
from complearn.core.plugins import Registry, allow_code, allowed_modules

FILE = """
from complearn.core.plugins import Registry

@Registry.kinds["test colour"].register("{name}")
def {name}():
    return "{name}"
"""


@pytest.fixture
def colours(tmp_path, monkeypatch):
    """A registry that is gone after the test, in a folder on Python's path."""
    monkeypatch.setattr(Registry, "kinds", dict(Registry.kinds))
    monkeypatch.setattr(plugins, "ALLOWED", [])
    monkeypatch.setattr(plugins, "_installed", [])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(tmp_path)
    return Registry("test colour")


def test_a_part_of_an_installed_package_is_found_by_its_plain_name(colours, tmp_path):
    (tmp_path / "red_package.py").write_text(FILE.format(name="red"))
    about = tmp_path / "red_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: red-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[complearn.plugins]\nred = red_package\n")
    assert "red" not in colours and colours["red"]() == "red"
    assert colours.reference("red") == "red", "another process finds it by its name, too"
    with pytest.raises(ValueError, match="no test colour 'rad'"):
        colours["rad"]


def test_a_part_of_a_file_is_found_once_a_person_has_named_it(colours, tmp_path):
    (tmp_path / "blue_file.py").write_text(FILE.format(name="blue"))
    with pytest.raises(ValueError, match="--allow-code blue_file:blue"):
        colours["blue_file:blue"]
    assert allowed_modules(["blue_file:blue"]) == []
    assert colours.load("blue_file:blue")() == "blue" and colours.reference("blue") == "blue_file:blue"
    assert allowed_modules({"a": [{"name": "blue_file:blue"}], "b": "json:tool", "c": 3}) == ["blue_file"]
    with pytest.raises(ValueError, match="no test colour 'green' in blue_file, which registers blue"):
        colours["blue_file:green"]


def test_a_file_that_is_not_there_names_the_place(colours):
    with pytest.raises(ValueError, match=r"reader 'nowhere:mine': no nowhere\.py in"):
        allow_code("nowhere:mine", "reader")


def test_an_error_inside_a_persons_file_is_raised_as_it_is(colours, tmp_path):
    (tmp_path / "broken_file.py").write_text("import a_package_that_is_missing")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        allow_code("broken_file:mine")


def test_a_part_of_a_notebooks_cell_cannot_go_to_another_process(colours):
    def cell(): ...

    cell.__module__ = "__main__"
    colours.add("mine", cell)
    with pytest.raises(ValueError, match=r"%%writefile my_test_colours\.py.*name it 'my_test_colours:mine'"):
        colours.reference("mine")


@pytest.mark.parametrize("name, cls", [("edits", "EditsApp"), ("concepts", "ConceptExplorer")])
def test_an_app_of_the_front_door_opens_without_arguments(name, cls):
    assert type(getattr(complearn, name)()).__name__ == cls


@pytest.mark.parametrize("name", ["codes", "stages", "search"])
def test_an_app_of_the_front_door_refuses_a_folder_without_runs(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run|holds no model"):
        getattr(complearn, name)(tmp_path)


def test_the_front_door_names_its_functions():
    with pytest.raises(AttributeError, match="its functions are load, export, read, train, judge, study, runs, search"):
        complearn.nothing  # noqa: B018
    assert {"load", "read"} <= set(dir(complearn))


def test_a_page_imports_the_module_of_its_own_app_alone():
    code = """if True:
        import sys
        from complearn.core.plugins import import_declared
        from complearn.apps.pages import APPS
        import_declared("app", "runs")
        assert list(APPS) == ["runs"], list(APPS)
        assert "complearn.apps.search.controller" not in sys.modules
        import_declared("app", "my_file:mine")
        assert list(APPS) == ["runs"]
        import_declared("app")
        print(*sorted(APPS))
    """
    env = {**os.environ, "COMPLEARN_TYPECHECK": "0"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert ended.stdout.split() == ["codes", "concepts", "edits", "map", "review", "runs", "search", "stages"], (
        ended.stderr
    )

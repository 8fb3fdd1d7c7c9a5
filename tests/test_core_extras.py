import sys

import pytest
from conftest import ROOT

from complearn.core.extras import need


def test_a_library_that_is_there_is_imported():
    assert need("json.decoder", extra="readers") is sys.modules["json.decoder"]


def test_a_missing_one_names_the_extra():
    with pytest.raises(
        ImportError, match=r"needs the library 'no_such_library.part'.*pip install 'complearn\[towers\]'"
    ) as caught:
        need("no_such_library.part", extra="towers")
    assert caught.value.name == "no_such_library"


def test_a_broken_one_fails_with_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "half_a_library.py").write_text("import something_it_needs_and_has_not\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_it_needs_and_has_not") as caught:
        need("half_a_library", extra="readers")
    assert "complearn[" not in str(caught.value)


def test_every_extra_that_is_named_exists():
    import re

    settings = (ROOT / "settings.ini").read_text()
    there = set(re.findall(r"^(\w+)_requirements", settings, re.M))
    called = {}
    for path in (ROOT / "complearn").rglob("*.py"):
        for extra in re.findall(r"""\bneed\(\s*[^()]*?,\s*(?:extra=)?["'](\w+)["']\s*\)""", path.read_text()):
            called.setdefault(extra, path.name)
    assert set(called) <= there, (
        f"extras that settings.ini does not have: { {e: p for e, p in called.items() if e not in there} }"
    )

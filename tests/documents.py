"""README and the pages of docs/, as tests read them."""

import importlib.util
import re
import sys

from conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def document(name: str) -> str:
    """The text of a page, such as `docs/own-data.md`."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def command_lines(text: str) -> list[str]:
    """The commands of a page, a continued one in one line, without remarks; then those inside its sentences."""
    lines = "\n".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    inside = re.findall(r"`((?:complearn [a-z]|python -m complearn)[^`\n]*)`", text)
    return [line.split("  # ")[0].strip() for line in [*lines, *inside] if line.strip()]


def site_builder():
    """The module docs/build.py, which builds the site and README."""
    return docs_module("build")


def release_maker():
    """The module docs/release.py, which writes what is handed out, and the page of licences."""
    return docs_module("release")


def docs_module(file):
    """A program of docs/."""
    name = f"complearn_docs_{file}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{file}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]

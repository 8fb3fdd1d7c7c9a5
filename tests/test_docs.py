"""README, the pages of docs/ and the site that is built from them: commands, code, links, language, length."""

import ast
import configparser
import contextlib
import importlib
import inspect
import io
import json
import re
import shlex
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
import typer
import yaml
from conftest import ROOT
from documents import PAGES, blocks, command_lines, docs_module, document, release_maker, site_builder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import complearn
from complearn.analysis.claims.declared import TREES
from complearn.training.methods.composer import composer_rows

# phrases that a reader stumbles over
ODD = re.compile(
    r"\b[Ww]hat (?:the |a |an |each |this |all |both |one |people |captions |it |they |is |was |has |stands|comes|makes"
    r"|holds|follows|must|may|can|else|no )|\banew\b|\bbeside\b|\bparted\b|\blikewise\b|\bat hand\b|\bstands\b"
    r"|\bof (?:its|one's|their|our|his|your) own\b|\bbrings?\b|\bso many\b|\blaid open\b"
)
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
COMMANDS = [(name, line) for name in NAMES for line in command_lines(document(name))]


def test_readme_is_short():
    text = document("README.md")
    assert len(text.splitlines()) <= 150 and len(text.split()) <= 1200


@pytest.mark.parametrize("name", [*NAMES, "data/README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_pages_are_in_plain_english(name):
    text = document(name)
    found = ODD.findall(text)
    assert len(found) <= max(1, 3 * len(text.split()) / 1000), f"rewrite: {found}"


def test_pictures_of_the_readme_are_small_and_come_in_both_themes():
    names = re.findall(r'"(nbs/images/[^"]+)"', document("README.md"))
    assert {name.rpartition("-")[2] for name in names} == {"light.png", "dark.png"} and len(names) == 6
    assert all((ROOT / name).stat().st_size < 300_000 for name in names)


def test_every_page_is_in_the_menu():
    build = site_builder()
    listed = ["README.md", *(f"docs/{name}.md" for name in build.GUIDES)]
    listed += [f"docs/papers/{name}.md" for name in build.PAPERS]
    assert sorted(listed) == sorted(NAMES)


# --- commands


def notebook_parameters(path):
    """The parameters of a papermill notebook and their types."""
    for cell in json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            body = ast.parse("".join(cell["source"])).body
            return {node.target.id: ast.unparse(node.annotation) for node in body if isinstance(node, ast.AnnAssign)}
    raise AssertionError(f"{path} has no cell of parameters")


def check_papermill(words):
    """A papermill command names a notebook, its parameters, and values that can be read."""
    path = next(word for word in words[1:] if word.endswith(".ipynb"))
    assert (ROOT / path).is_file(), f"there is no notebook {path}"
    known = notebook_parameters(path)
    for k in [k for k, word in enumerate(words) if word == "-p"]:
        name, value = words[k + 1 : k + 3]
        assert name in known, f"{path} has no parameter {name}; it has {', '.join(known)}"
        if value.startswith(("[", "{")):
            json.loads(value)
        if known[name] in ("int", "float"):
            float(value)


def help_of(module, words):
    """The help of a program of ours, or of the subcommand that a command names."""
    subcommand = words[:1] if module == "complearn.apps.concepts" else []
    program = importlib.import_module(module)
    if hasattr(program, "__path__"):  # a package that is a program
        program = importlib.import_module(f"{module}.command")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        program.main([*subcommand, "--help"])
    return out.getvalue()


def check_module(words):
    """A command `python -m complearn...` names a program, and options that it has."""
    module = words[words.index("-m") + 1]
    rest = words[words.index(module) + 1 :]
    said = help_of(module, rest)
    for option in [word for word in rest if word.startswith("--")]:
        assert re.search(rf"{option}(?![\w-])", said), f"{module} has no option {option}"
    for value in [word for word in rest if word.startswith("{")]:
        yaml.safe_load(value.replace("...", ""))


def check_make(words):
    """A target of make."""
    text = document("Makefile")
    for word in words[1:]:
        assert re.search(rf"^{word}: ", text, re.M), f"make has no target {word}"


def check_pip(words):
    """An installation names extras that there are."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "settings.ini")
    for extra in re.findall(r"[a-z]+", "".join(re.findall(r"\[(.*?)\]", " ".join(words)))):
        assert f"{extra}_requirements" in settings["DEFAULT"], f"there is no extra {extra}"


def check_complearn(words):
    """A command of the command line, with arguments and options that its verb takes."""
    from complearn.command import app, main

    program = typer.main.get_command(app)
    verb, *rest = words[1:]
    assert verb in program.commands, f"complearn has no verb {verb}; it has {', '.join(program.commands)}"
    if not rest:  # named in a sentence
        return
    program.commands[verb].make_context(verb, list(rest))
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([verb, "--help"])
    for option in [word for word in rest if word.startswith("--")]:
        assert re.search(rf"{option}(?![\w-])", out.getvalue()), f"complearn {verb} has no option {option}"


CHECKS = {"papermill": check_papermill, "python": check_module, "torchrun": check_module, "make": check_make}
CHECKS |= {"pip": check_pip, "complearn": check_complearn}
OTHERS = {"cp", "cd", "source", "git"}


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_name_what_there_is(page, line):
    for part in re.split(r" && ", line):
        words = shlex.split(part, comments=True)
        if words[0] not in OTHERS:
            assert words[0] in CHECKS, f"{page}: {words[0]} is no program that this test knows"
            CHECKS[words[0]](words)


STUDIES = re.findall(
    r"`(nbs/experiments/\w+\.ipynb)` with `(-p [^`]*)`", (ROOT / "data" / "README.md").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(("notebook", "options"), STUDIES)
def test_commands_of_declared_studies_name_what_there_is(notebook, options):
    words = shlex.split(f"papermill {notebook} OUT.ipynb {options}")
    check_papermill(words)
    if "composer.ipynb" in notebook:
        rows = composer_rows(json.loads(words[words.index("rows") + 1]))
        sides = [side.method for claim in TREES.primary for side in (claim.a, claim.b)]
        assert {*sides, "vse, sentences alone", "two_stream, sentences alone"} == set(rows), "the five that were fixed"


def test_a_wrong_command_is_noticed():
    notebook = "papermill nbs/experiments/composer.ipynb OUT.ipynb"
    with pytest.raises(AssertionError, match="has no parameter stesp"):
        check_papermill(shlex.split(f"{notebook} -p stesp 3"))
    with pytest.raises(ValueError):
        check_papermill(shlex.split(f"{notebook} -p seeds '[0,'"))
    with pytest.raises(AssertionError, match="has no option --operator"):
        check_module(shlex.split("python -m complearn.apps.edits a.csv b.jsonl --operator swap"))
    with pytest.raises(AssertionError, match="no verb trian"):
        check_complearn(["complearn", "trian", "clip"])
    with pytest.raises(typer.TyperException, match="--stat"):
        check_complearn(["complearn", "train", "clip", "photos/", "--stat", "mine.pt"])
    with pytest.raises(AssertionError, match="no target docks"):
        check_make(["make", "docks"])


# --- code


def check_call(node):
    """A call of a function of the front door, with arguments that it takes."""
    function = getattr(complearn, node.func.attr)
    inspect.signature(function).bind(*node.args, **{word.arg: word.value for word in node.keywords})


@pytest.mark.parametrize("name", NAMES)
def test_python_of_the_pages_calls_and_imports_what_there_is(name):
    for block in blocks(document(name), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("complearn."):
                check_call(node)
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "complearn":
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{node.module} has no {missing}"


def test_guests_on_the_page_are_the_tested_files():
    page = document("docs/guests.md")
    shown = re.findall(r"^\[(tests/[\w/]+\.py)\]\(\.\./\1\):\n\n```python\n(.*?)```", page, re.M | re.S)
    assert all(code == document(path) for path, code in shown)
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "guests").glob("*.py")}
    assert files - {path for path, _ in shown} == {"tests/guests/stumbling.py"}  # a method that a test kills


# --- the site


class Links(HTMLParser):
    """The links of a page, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links = []
        self.anchors = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src", "srcset"):
                self.links.append((tag, value))


def check_links(site):
    """Every link of a site leads to a file of it, and every anchor to a heading; nothing is loaded from elsewhere."""
    site = site.resolve()
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    faults = []
    for path, page in pages.items():
        for tag, link in page.links:
            if link.startswith("data:") or (tag == "a" and link.startswith("https://")):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or not target.is_relative_to(site):
                faults.append(f"{path.relative_to(site)}: {link} leads nowhere")
            elif anchor and anchor not in pages[target].anchors:
                faults.append(f"{path.relative_to(site)}: {link} names no heading")
    assert not faults, "\n".join(faults)
    return pages


def searched(site):
    """The pages that the search knows: title, address, words."""
    text = (site / "static" / "search.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("window.pages = ").removesuffix(";\n"))


def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path):
    """The pages, and the notebooks and files that they name."""
    build = site_builder()
    count = build.build(tmp_path / "site", with_notebooks=False)
    pages = check_links(tmp_path / "site")
    assert count == len(pages) > 40
    known = {address: text for _, address, text in searched(tmp_path / "site")}
    assert {"index.html", "docs/own-data.html", "docs/papers/composer.html"} <= set(known)
    assert "papermill" in known["docs/own-data.html"]
    page = (tmp_path / "site" / "docs" / "papers" / "composer.html").read_text(encoding="utf-8")
    assert "<td>20</td><td>MVSA lifts phrases</td>" in page and "<td>21</td>" not in page


def test_a_link_to_no_file_is_an_error_with_its_place(tmp_path):
    with pytest.raises(FileNotFoundError, match="docs/page.md: the link nowhere.md leads to no file"):
        site_builder().finished("docs/page.md", '<p><a href="nowhere.md">there</a></p>')


def test_a_link_within_code_is_none_of_the_page():
    code = site_builder().code_html('re.sub(\'<a href="nowhere.md">\', "", text)')
    assert site_builder().finished("docs/page.md", code).body.count("nowhere.md") == 1


def test_the_reference_shows_heads_with_their_comments(tmp_path):
    source = tmp_path / "made_up.py"
    source.write_text(
        '''"""A module"""

@dataclass
class Shelf:
    "Holds books."

    # how many
    size: int = 3

    def add(
        self,
        book: str,  # its title
    ) -> None:
        "Add one."
        self.books.append(book)

    def _hidden(self): pass


def _private(): pass
'''
    )
    (shelf, head, doc), (method, signature, _) = site_builder().members(source)
    assert (shelf, doc, method) == ("Shelf", "Holds books.", "Shelf.add")
    assert head == "@dataclass\nclass Shelf:\n    # how many\n    size: int = 3"
    assert signature == "def add(\n    self,\n    book: str,  # its title\n) -> None:"


@pytest.mark.slow
def test_the_whole_site_is_built_and_every_link_leads_somewhere(tmp_path):
    site = tmp_path / "site"
    site_builder().build(site)
    pages = check_links(site)
    notebooks = site_builder().notebook_files()
    assert all((site / notebook).with_suffix(".html") in pages for notebook in notebooks)
    figures = sum(page.read_text(encoding="utf-8").count('<div class="figure">') for page in pages)
    assert figures > 100 and (site / "api" / "api.html") in pages


def errors_of(page):
    """A list that receives the errors of a page's scripts."""
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    return faults


@pytest.mark.slow
@pytest.mark.browser
def test_the_site_searches_and_draws_figures_in_a_browser(tmp_path):
    from browser import open_chromium, requests_of

    site = tmp_path / "site"
    site_builder().build(site, with_notebooks=False)
    with open_chromium() as browser:
        for scheme, width in (("light", 1600), ("dark", 420)):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            foreign = requests_of(page)
            faults = errors_of(page)
            page.goto((site / "index.html").as_uri())
            page.fill(".search input", "hard negatives")
            page.wait_for_selector(".search li a")
            assert page.locator(".search li a").first.get_attribute("href").endswith("docs/hard-negatives.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.goto((site / "api" / "index.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "long names of modules"
            page.goto((site / "nbs" / "experiments" / "composer.html").as_uri())
            page.wait_for_selector("table", state="attached")  # folded
            sides = "[...document.querySelectorAll('table, td')].map(one => getComputedStyle(one).borderLeftWidth)"
            assert set(page.evaluate(sides)) == {"0px"}, "tables of pandas have the borders of the site's"
            page.goto((site / "nbs" / "experiments" / "iterated_learning.html").as_uri())
            page.locator(".figure").first.scroll_into_view_if_needed()
            page.wait_for_selector(".figure .main-svg")
            assert not foreign and not faults
            page.close()


# --- licences


def test_every_package_and_every_data_set_has_its_licence_in_the_table():
    """`python docs/release.py --licences` writes the table; it may name packages that are not installed here."""
    release = release_maker()
    rows = re.findall(r"^\| ([^|]+) \| (?:[a-z]+ \| )?([^|]+) \|$", document("docs/licences.md"), re.M)
    table = dict(rows)
    wanted = {
        canonicalize_name(Requirement(name).name)
        for key, names in release.settings().items()
        if key.endswith("requirements")
        for name in names.split()
    }
    assert wanted <= set(table), f"not in docs/licences.md: {sorted(wanted - set(table))}"
    for name, (package, _) in release.installed().items():
        assert table.get(name) == (release.licence_of(package) or release.ARGUED.get(name)), name
    sources = json.loads((ROOT / "data" / "sources.json").read_text())["sources"]
    assert {source["name"]: source["licence"] for source in sources}.items() <= table.items()


def test_a_bill_of_materials_names_versions_and_licences():
    bill = release_maker().bill_of_materials()
    torch = next(part for part in bill["components"] if part["name"] == "torch")
    assert torch["purl"] == f"pkg:pypi/torch@{torch['version']}" and torch["licenses"] and bill["specVersion"] == "1.6"
    assert len({part["bom-ref"] for part in bill["components"]}) == len(bill["components"]) > 50


ANSWERS = [  # what pip-audit prints, the status, and what is said of it
    ([{"name": "torch", "version": "2", "vulns": []}], 0, "asked for known faults of 1 pinned versions"),
    ([{"name": "torch", "skip_reason": "not found"}], 0, "nothing is known about 1 of 1 pinned versions"),
    (
        [{"name": "torch", "version": "2", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}]}],
        1,
        "torch 2: PYSEC-1, mended in 3",
    ),
    (
        [{"name": "torch", "version": "2", "vulns": [{"id": "PYSEC-2", "aliases": ["CVE-2"], "fix_versions": []}]}],
        0,
        "PYSEC-2 of torch is known and does no harm: only its server has it",
    ),
    (None, 0, "not asked for known faults: pip-audit failed (no network)"),
]


@pytest.mark.parametrize("packages, status, said", ANSWERS)
def test_a_known_fault_stops_a_release_unless_it_is_argued(packages, status, said, monkeypatch, capsys):
    release = release_maker()
    asked = []

    def answer(words, **how):
        asked.append(words)
        text = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
        return subprocess.CompletedProcess(words, 0, text, "Traceback\nno network")

    monkeypatch.setattr(release.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(release.subprocess, "run", answer)
    monkeypatch.setattr(release, "FAULTS", {"CVE-2": "only its server has it"})
    assert release.audit() == status
    assert str(ROOT / "constraints.txt") in asked[0]
    assert said in capsys.readouterr().out


def test_the_counts_of_faults_are_those_that_the_tests_kept():
    counts = docs_module("faults")
    page = document("docs/faults.md")
    assert counts.with_counts(page) == page, "python docs/faults.py writes them"
    assert len(re.findall(r"^\| T[2-8], ", page, re.M)) == 9

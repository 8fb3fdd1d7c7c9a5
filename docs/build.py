"""Build the documentation as a web site, without a network: `make docs`.

The site mirrors the repository: `docs/own-data.md` becomes `docs/own-data.html`, `nbs/core/seeds.ipynb` becomes
`nbs/core/seeds.html`, README.md becomes `index.html`. So a link between two files of the repository is a link between
two pages. A page for each module below `api/` shows its public names, read from the source without importing it.
"""

import argparse
import ast
import html
import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [
    "install",
    "experiments",
    "own-data",
    "own-model",
    "hard-negatives",
    "concepts",
    "stages",
    "maps",
    "grounding",
    "codebooks",
    "scale",
    "faults",
    "speed",
    "results",
    "guests",
    "layout",
    "glossary",
    "licences",
]
PAPERS = ["index", "iterated-learning", "composer", "stages", "causal-lens", "grounding"]
LESSONS = ["1_first_run", "2_your_photos", "3_hard_negatives", "4_your_own_method"]
OTHERS = ["data/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
CLAIMS = "nbs/experiments/claims.ipynb"
SEARCHED = 4000  # characters of a page that the search knows
ROOMS = {
    "": "Front door",
    "tutorials": "Lessons",
    "experiments": "Experiments, one per paper result",
    "benchmarks": "Speed and memory",
}
FORMATTER = HtmlFormatter(nowrap=True)


# --- README


def readme_text() -> str:
    """README.md as nbs/index.ipynb says it: without code, and with paths as seen from the project's folder."""
    command = [sys.executable, "-m", "nbconvert", "--to", "markdown", "--stdout", "--log-level", "ERROR"]
    command += ["--TagRemovePreprocessor.enabled=True", "--TagRemovePreprocessor.remove_input_tags=remove-input"]
    done = subprocess.run([*command, ROOT / "nbs" / "index.ipynb"], capture_output=True, text=True, check=True)
    text = re.sub(r"\]\((?!https?:|#|\.\./)", "](nbs/", done.stdout).replace("](../", "](")
    text = re.sub(r'(src|srcset)="images/', r'\1="nbs/images/', text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


# --- pages


@dataclass
class Page:
    """A page of the site."""

    path: str  # of its file in the repository, or of what it shows; it decides the address
    body: str  # HTML
    title: str = ""
    text: str = ""  # for the search
    links: list[str] = field(default_factory=list)  # files of the repository that it links

    @property
    def address(self) -> str:
        return address_of(self.path)


def address_of(path: str) -> str:
    """The address of a file's page in the site; a file that has no page keeps its path."""
    if path == "README.md":
        return "index.html"
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.html" if ending in ("md", "ipynb", "py", "cff") and dot else path


def relative(address: str, page: str) -> str:
    """An address as seen from a page."""
    return posixpath.relpath(address, posixpath.dirname(page) or ".")


def code_html(source: str, language: str = "python") -> str:
    """Source with its syntax marked."""
    try:
        lexer = get_lexer_by_name(language or "text", stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    marked = highlight(source, lexer, FORMATTER)
    # a quotation mark in code is none of an attribute, where `with_links` looks for links
    marked = re.sub(r">[^<>]*<", lambda text: text[0].replace('"', "&quot;"), f"<code>{marked}</code>")
    return f'<pre class="code" tabindex="0">{marked}</pre>'


def slug(text: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", re.sub(r"<.*?>", "", html.unescape(text)).lower()).strip().replace(" ", "-")


class Renderer(mistune.HTMLRenderer):
    """Markdown as HTML, with anchors at headings and marked code."""

    def heading(self, text, level, **attributes):
        return f'<h{level} id="{slug(text)}">{text}</h{level}>\n'

    def block_code(self, code, info=None):
        return code_html(code, (info or "text").split()[0]) + "\n"


markdown = mistune.create_markdown(renderer=Renderer(escape=False), plugins=["table", "strikethrough"])
LINK = re.compile(r'\b(href|src|srcset)="([^"]+)"')


def is_outside(link: str) -> bool:
    """Whether a link leads out of the repository, or nowhere but into its own page."""
    return bool(re.match(r"[a-z]+:|#|//", link))


def with_links(body: str, path: str, links: list[str]) -> str:
    """HTML with links between files turned into links between pages; the files are added to `links`."""

    def replace(match):
        kind, link = match.groups()
        if is_outside(link):
            return match[0]
        file, hash_, anchor = html.unescape(link).partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if file.startswith("..") or not (ROOT / file).exists():
            raise FileNotFoundError(f"{path}: the link {link} leads to no file; correct it")
        links.append(file)
        return f'{kind}="{relative(address_of(file), address_of(path))}{hash_}{anchor}"'

    return LINK.sub(replace, body)


def plain(body: str) -> str:
    """The words of a piece of HTML."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body))).strip()


def first_heading(body: str) -> str:
    """The text of the first heading."""
    match = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.DOTALL)
    return plain(match[1]) if match else ""


def finished(path: str, body: str, title: str = "") -> Page:
    """A page from its file and its HTML, with links and words for the search."""
    links: list[str] = []
    body = with_links(body, path, links)
    return Page(path, body, title or first_heading(body) or path, plain(body)[:SEARCHED], links)


def claims_html(numbers: Iterable[str]) -> str:
    """The lines about some claims in the committed notebook of claims, as a table."""
    cells = json.loads((ROOT / CLAIMS).read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", []) if "data" in output]
    pages = ["".join(output["data"].get("text/html", "")) for output in outputs]
    table = next(page for page in pages if "<th>headline</th>" in page)
    lines = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    ]
    head = ["claim", *lines[0][1:]]
    columns = [head.index(name) for name in ("claim", "headline", "study", "seeds", "difference", "verdict")]
    rows = [line for line in lines[2:] if line[0] in set(numbers)]
    body = "".join(f"<tr>{''.join(f'<td>{row[k]}</td>' for k in columns)}</tr>" for row in rows)
    top = "".join(f"<th>{head[k]}</th>" for k in columns)
    title = f"All {len(rows)} lines of the claims notebook about this paper"
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>{title}</summary>{table}</details>"


def markdown_page(path: str) -> Page:
    """The page of a Markdown file."""
    body = markdown((ROOT / path).read_text(encoding="utf-8"))
    body = re.sub(r"<!-- claims ([\d ]+?) -->", lambda match: claims_html(match[1].split()), body)
    return finished(path, body)


def source_page(path: str) -> Page:
    """The page of a source file."""
    body = f"<h1>{html.escape(path)}</h1>" + code_html((ROOT / path).read_text(encoding="utf-8"))
    return finished(path, body, path)


# --- notebooks


def output_html(output: dict) -> str:
    """One output of a cell; a figure becomes data that the page draws."""
    if output["output_type"] == "stream":
        if output["name"] == "stderr":
            return ""
        return f'<pre class="out" tabindex="0">{html.escape("".join(output["text"]))}</pre>'
    data = {kind: value if isinstance(value, (dict, str)) else "".join(value) for kind, value in output["data"].items()}
    if figure := data.get("application/vnd.plotly.v1+json"):
        content = json.dumps({key: figure[key] for key in ("data", "layout")}).replace("</", "<\\/")
        return f'<div class="figure"><script type="application/json">{content}</script></div>'
    if "image/png" in data:
        return f'<img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "application/vnd.jupyter.widget-view+json" in data:  # a widget lives in a kernel
        return ""
    if "text/html" in data:
        shown = data["text/html"].replace("<table ", '<table tabindex="0" ')
        return f'<div class="out">{shown}</div>'
    if "text/markdown" in data:
        return markdown(data["text/markdown"])
    return f'<pre class="out" tabindex="0">{html.escape(data.get("text/plain", ""))}</pre>'


def notebook_page(path: str) -> Page:
    """The page of a committed notebook, with its outputs; exported cells are folded in experiments."""
    parts = []
    for cell in json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(markdown(source))
        elif cell["cell_type"] == "code":
            code = code_html(source)
            if path.startswith(("nbs/experiments/", "nbs/benchmarks/")):
                code = f"<details><summary>code</summary>{code}</details>"
            parts += [code, *map(output_html, cell["outputs"])]
    note = f'<p class="file">{html.escape(path)}</p>'
    return finished(path, note + "\n".join(parts))


def notebook_files() -> list[str]:
    """Every notebook of the project, by path."""
    found = (path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.name != "index.ipynb")


def notebooks_page(files: Iterable[str]) -> Page:
    """The list of all notebooks, by folder; experiments come first."""
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault("/".join(file.split("/")[1:-1]), []).append(file)
    parts = ["<h1>Notebooks</h1><p>Every notebook with its committed outputs and figures.</p>"]
    for group in sorted(
        groups, key=lambda name: (name not in ROOMS, list(ROOMS).index(name) if name in ROOMS else 0, name)
    ):
        items = [f'<li><a href="{file}">{html.escape(subtitle(file))}</a></li>' for file in groups[group]]
        parts.append(f"<h2>{ROOMS.get(group, group)}</h2><ul>{''.join(items)}</ul>")
    return finished("notebooks.html", "\n".join(parts))


def subtitle(file: str) -> str:
    """A notebook's title and the line under it."""
    text = "".join(json.loads((ROOT / file).read_text(encoding="utf-8"))["cells"][0]["source"])
    title = re.search(r"^# (.+)", text, re.M)
    line = re.search(r"^> (.+)", text, re.M)
    return f"{title[1] if title else file}: {line[1]}" if line else title[1] if title else file


# --- API


def signature(lines: list[str], node: ast.AST) -> str:
    """The head of a function with its comments, or of a class with its fields, as it is written."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    body = node.body
    if isinstance(node, ast.ClassDef):
        last = next((item for item in body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
        fields = [item for item in body if isinstance(item, ast.AnnAssign)]
        end = fields[-1].end_lineno if fields and (not last or fields[-1].lineno < last.lineno) else node.lineno
        start = fields[0].lineno if end > node.lineno else node.lineno + 1
        while start > node.lineno + 1 and lines[start - 2].lstrip().startswith("#"):
            start -= 1
        kept = lines[first - 1 : node.lineno] + lines[start - 1 : end]
    else:
        kept = lines[first - 1 : max(body[0].lineno - 1, node.lineno)]
    return "\n".join(line[node.col_offset :] for line in kept).rstrip()


def members(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, head and docstring of everything public in a module, methods after their class."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.parse(text).body:
        if not isinstance(node, kinds) or node.name.startswith("_"):
            continue
        yield node.name, signature(lines, node), ast.get_docstring(node) or ""
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, kinds) and not item.name.startswith("_"):
                yield f"{node.name}.{item.name}", signature(lines, item), ast.get_docstring(item) or ""


def module_page(path: Path) -> Page | None:
    """The page of a module's public names; None: it has none."""
    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    parts = []
    for member, head, doc in members(path):
        level = 3 if "." in member else 2
        parts.append(f'<h{level} id="{member}">{member}</h{level}>{code_html(head)}{markdown(doc)}')
    if not parts:
        return None
    notebook = path.relative_to(ROOT / "complearn").with_suffix(".ipynb").as_posix()
    about = html.escape(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    there = (ROOT / "nbs" / notebook).exists()
    lesson = f'<p>Examples: <a href="{"../" * name.count(".")}nbs/{notebook}">the notebook</a>.</p>' if there else ""
    own = f"api/{name.removeprefix('complearn.').replace('.', '/')}.html"
    return finished(own, f"<h1>{name}</h1><p>{about}</p>{lesson}{''.join(parts)}")


def api_pages() -> list[Page]:
    """A page for each module, and the list of them."""
    files = sorted(path for path in (ROOT / "complearn").rglob("*.py") if not path.name.startswith("_"))
    pages = [page for page in map(module_page, files) if page]
    items = []
    for page in pages:
        about = re.search(r"<p>(.*?)</p>", page.body, re.DOTALL)
        items.append(f'<li><a href="{relative(page.address, "api/index.html")}">{page.title}</a>: {about[1]}</li>')
    intro = (
        "<h1>API</h1><p>Every public name, by module. Most work begins with the functions of <code>complearn</code>: "
    )
    door = '<a href="api.html">the front door</a>.</p>'
    index = Page("api/index.html", f"{intro}{door}<ul>{''.join(items)}</ul>", "API", "API of all modules")
    return [index, *pages]


# --- the site


def menu(page: Page, titles: dict[str, str]) -> str:
    """The list of pages at the side."""
    guides = [f"docs/{name}.md" for name in GUIDES]
    papers = [f"docs/papers/{name}.md" for name in PAPERS]
    groups = [
        ("", ["README.md"]),
        ("Lessons", [f"nbs/tutorials/{name}.ipynb" for name in LESSONS]),
        ("Guides", guides),
        ("Papers", papers),
        ("Reference", ["api/index.html", "notebooks.html", *OTHERS]),
    ]
    parts = []
    for title, files in groups:
        links = []
        for file in files:
            here = ' aria-current="page"' if file == page.path else ""
            label = "Start" if file == "README.md" else titles[file].removeprefix("Lesson ")
            links.append(f'<li><a href="{relative(address_of(file), page.address)}"{here}>{label}</a></li>')
        parts.append((f"<h2>{title}</h2>" if title else "") + f"<ul>{''.join(links)}</ul>")
    return "".join(parts)


def collect(with_notebooks: bool = True) -> tuple[list[Page], list[str]]:
    """All pages, and the other files that they link; without notebooks: only those that a page links."""
    makers = {".md": markdown_page, ".ipynb": notebook_page, ".py": source_page, ".cff": source_page}
    waiting = ["README.md", *(f"docs/{name}.md" for name in GUIDES), *(f"docs/papers/{name}.md" for name in PAPERS)]
    waiting += [*(f"nbs/tutorials/{name}.ipynb" for name in LESSONS), *OTHERS]
    pages = {}
    files = set()
    if with_notebooks:
        notebooks = notebooks_page(notebook_files())
        for page in [notebooks, *api_pages()]:
            pages[page.path] = page
            waiting += page.links
    else:
        pages["notebooks.html"] = Page("notebooks.html", "<h1>Notebooks</h1>", "Notebooks")
        pages["api/index.html"] = Page("api/index.html", "<h1>API</h1>", "API")
    while waiting:
        path = waiting.pop()
        if path in pages or path in files:
            continue
        make = makers.get(Path(path).suffix)
        if make is None:
            files.add(path)
            continue
        pages[path] = make(path)
        waiting += pages[path].links
    return list(pages.values()), sorted(files)


def build(site: Path, with_notebooks: bool = True) -> int:
    """Write the site into a new or an older folder of it; returns the number of pages."""
    pages, files = collect(with_notebooks)
    titles = {page.path: page.title for page in pages}
    shutil.rmtree(site, ignore_errors=True)
    frame = Template((ROOT / "docs" / "static" / "page.html").read_text(encoding="utf-8"))
    for page in pages:
        root = relative(".", page.address)
        plotly = f'<script defer src="{root}/static/plotly.min.js"></script>' if 'class="figure"' in page.body else ""
        content = {"title": html.escape(page.title), "body": page.body, "menu": menu(page, titles)}
        target = site / page.address
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(frame.substitute(content, root=root, plotly=plotly), encoding="utf-8")
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, site / file)
    static = site / "static"
    static.mkdir()
    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".code")
    style = (ROOT / "docs" / "static" / "site.css").read_text(encoding="utf-8")
    style += f"\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    (static / "site.css").write_text(style, encoding="utf-8")
    shutil.copy(ROOT / "docs" / "static" / "site.js", static)
    entries = [[page.title, page.address, page.text] for page in pages]
    (static / "search.js").write_text(f"window.pages = {json.dumps(entries)};\n", encoding="utf-8")
    import plotly

    shutil.copy(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", static)
    return len(pages)


def main() -> None:
    """Build the site, or write README.md."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("site", nargs="?", default=str(ROOT / "_docs"), help="the folder to write (default: _docs)")
    parser.add_argument("--readme", action="store_true", help="write README.md from nbs/index.ipynb, and nothing else")
    options = parser.parse_args()
    if options.readme:
        (ROOT / "README.md").write_text(readme_text(), encoding="utf-8")
        return
    count = build(Path(options.site))
    print(f"{count} pages: {Path(options.site).resolve() / 'index.html'}")


if __name__ == "__main__":
    main()

"""The files of the apps' pages: they parse as modules, their imports exist, rules of one app leave the other alone,
they are installed."""

import re
import subprocess

import pytest
from browser import open_chromium
from conftest import ROOT

from complearn.apps.pages import join_script, join_style, make_page, read_static, save_page

STATIC = ROOT / "complearn" / "apps" / "static"


def node(*arguments):
    return subprocess.run(["node", *map(str, arguments)], capture_output=True, text=True, timeout=60)


@pytest.mark.node
@pytest.mark.parametrize("app", ["codes", "concepts", "edits", "map", "review", "runs", "search", "stages"])
def test_a_script_parses_alone_and_joined_and_imports_only_what_there_is(app, tmp_path):
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name in ("shared", app):
        (tmp_path / f"{name}.js").write_text(read_static(f"{name}.js"))
    (tmp_path / "joined.js").write_text(join_script(app))
    for name in (app, "joined"):  # importing runs what stands outside functions, which needs no page
        program = f"const module = await import({str(tmp_path / name)!r} + '.js'); module.default.render.call;"
        done = node("--input-type=module", "--eval", program)
        assert done.returncode == 0, done.stderr


@pytest.mark.node
def test_the_check_sees_a_broken_script(tmp_path):
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "broken.js").write_text("export default { render: ( };")
    assert "SyntaxError" in node("--check", tmp_path / "broken.js").stderr


@pytest.mark.parametrize("app", ["codes", "concepts", "edits", "map", "review", "runs", "search", "stages"])
def test_every_class_of_a_sheet_is_used_and_every_rule_names_its_app(app):
    """Several apps may stand on one page."""
    sheet = re.sub(r"/\*.*?\*/", "", read_static(f"{app}.css"), flags=re.S)
    rules = [rule.strip() for rule in re.findall(r"[^{}]+(?=\{)", sheet)]
    selectors = [selector.strip() for rule in rules if not rule.startswith("@") for selector in rule.split(",")]
    assert len(selectors) > 15 and all(selector.startswith(f".cl.cl-{app}") for selector in selectors)
    used = set(re.findall(r"cl-[a-z-]+", join_script(app))) | {"cl-dark"}
    unused = set(re.findall(r"\.(cl-[a-z-]+)", sheet)) - used
    assert not unused, f"{app}.css has rules for {unused}, which {app}.js never makes"


def test_nothing_asks_a_network_and_text_is_never_markup():
    for app in ("codes", "concepts", "edits", "map", "review", "runs", "search", "stages"):
        script = join_script(app).replace('"http://www.w3.org/2000/svg"', "")  # the name of a language, not an address
        assert "innerHTML" not in script and "http" not in script
        assert "http" not in join_style(app) and "@import" not in join_style(app)


def test_a_script_that_is_not_a_module_of_ours_is_refused():
    with pytest.raises(ValueError, match="export default"):
        make_page("function render() {}", "", [])


@pytest.mark.browser
def test_a_saved_page_requests_nothing(tmp_path):
    """Not even where a message brings a picture or a style from elsewhere."""
    script = """
function render({ model, el }) {
  model.on("msg:custom", ({ text }) => { el.innerHTML = text; });
  model.send({ action: "connect" });
}
export default { render };
"""
    text = (
        "<b id='there'>there</b><img src='http://example.org/a.png'><link rel='stylesheet' "
        "href='http://example.org/a.css'>"
    )
    (tmp_path / "page.html").write_text(make_page(script, "", [({"text": text}, [])]))
    with open_chromium() as browser:
        context = browser.new_context()
        arrived = []
        context.route("http://**", lambda route: (arrived.append(route.request.url), route.abort()))
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_selector("#there")
        page.wait_for_timeout(500)
        assert arrived == []


def test_the_files_are_installed_with_the_package():
    text = (ROOT / "setup.py").read_text()
    assert '"apps/static/*"' in text and {path.suffix for path in STATIC.iterdir()} == {".js", ".css", ".html", ".j2"}


def test_a_page_is_saved_where_the_browser_does_not_end(tmp_path, monkeypatch, capsys):
    def run(words, timeout, **options):
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr("complearn.core.figures.find_browser", lambda: "chromium")
    monkeypatch.setattr("complearn.apps.pages.subprocess.run", run)
    assert save_page("<p>page</p>", tmp_path / "view.png") == [tmp_path / "view.html"]
    assert (tmp_path / "view.html").read_text() == "<p>page</p>"
    assert "chromium drew none (it did not end within 90 seconds)" in capsys.readouterr().out

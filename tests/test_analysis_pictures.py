"""Committed figures have a picture of themselves, within the room that a notebook has."""

import base64
import json
from io import BytesIO

import nbformat
import numpy as np
import plotly.graph_objects as go
import pytest
from conftest import ROOT
from PIL import Image

from complearn.analysis.claims import reports
from complearn.analysis.pictures.attribution import occlusion_figure, square_size
from complearn.core.figures import find_browser

NOTEBOOKS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
NO_ROOM = 300_000  # bytes of a notebook's other outputs from which on a picture may be left out


@pytest.fixture
def painter(monkeypatch):
    """In the place of a browser: noise as large as the figure's height asks for."""

    def draw(figure, scale=2.0):
        side = int(figure.layout.height * scale)
        content = BytesIO()
        noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(noise).save(content, "PNG")
        return content.getvalue()

    monkeypatch.setattr(reports, "draw_png", draw)
    monkeypatch.setattr(reports, "start_browser", lambda: "")


def cell_of(height, title="a figure"):
    figure = go.Figure(go.Bar(y=[1, 2]), {"height": height, "title": title})
    data = {"application/vnd.plotly.v1+json": json.loads(figure.to_json())}
    return nbformat.v4.new_code_cell("figure", outputs=[nbformat.v4.new_output("display_data", data)])


def notebook_of(path, *cells):
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), path)
    return path


def pictures(path):
    outputs = [output for cell in nbformat.read(path, 4).cells for output in cell.get("outputs", [])]
    found = [output.data.get("image/png") for output in outputs if "data" in output]
    return [None if text is None else Image.open(BytesIO(base64.b64decode(text))) for text in found]


def test_each_figure_gets_a_picture_with_few_colours(painter, tmp_path):
    path = notebook_of(tmp_path / "a.ipynb", cell_of(40), cell_of(60))
    assert reports.draw_pictures(path) == []
    assert [(picture.size, picture.mode) for picture in pictures(path)] == [((80, 80), "P"), ((120, 120), "P")]


def test_the_largest_picture_becomes_smaller_and_at_last_is_left_out(painter, tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "_SAVED", 60_000)
    path = notebook_of(tmp_path / "a.ipynb", cell_of(40), cell_of(200))
    assert reports.draw_pictures(path) == []
    assert [picture.size[0] for picture in pictures(path)] == [80, 200]
    path = notebook_of(tmp_path / "b.ipynb", cell_of(40), cell_of(650, "a tall one"))
    assert reports.draw_pictures(path) == ["a tall one: no picture of it fits into 60 kB"]
    assert pictures(path)[0].size == (80, 80) and pictures(path)[1] is None
    assert sum(len(json.dumps(output)) for cell in nbformat.read(path, 4).cells for output in cell.outputs) < 60_000


def test_a_figure_that_has_not_changed_keeps_its_picture_without_a_browser(painter, tmp_path, monkeypatch):
    path = notebook_of(tmp_path / "a.ipynb", cell_of(40), cell_of(60))
    reports.draw_pictures(path)
    before = path.read_bytes()
    assert reports.draw_pictures(path) == [] and path.read_bytes() == before
    monkeypatch.setattr(reports, "start_browser", lambda: "no Chromium was found")
    executed = notebook_of(tmp_path / "executed.ipynb", cell_of(40), cell_of(70))
    reports._write_outputs(executed, path)
    assert [picture and picture.size for picture in pictures(path)] == [(80, 80), None]


def test_a_figure_that_holds_many_pictures_is_saved_as_its_picture_alone(painter, tmp_path):
    large = cell_of(60, "codes")
    source = "data:image/png;base64," + "A" * reports._LARGE
    large.outputs[0].data["application/vnd.plotly.v1+json"]["layout"]["images"] = [{"source": source}]
    path = notebook_of(tmp_path / "a.ipynb", cell_of(40), large)
    assert reports.draw_pictures(path) == []
    small, alone = (cell.outputs[0].data for cell in nbformat.read(path, 4).cells)
    assert set(small) == {"application/vnd.plotly.v1+json", "image/png"}
    assert set(alone) == {"image/png", "text/plain"} and alone["text/plain"] == "codes"
    assert [picture.size for picture in pictures(path)] == [(80, 80), (120, 120)]
    before = path.read_bytes()
    assert reports.draw_pictures(path) == [] and path.read_bytes() == before


def test_two_lines_keep_their_colours_in_the_smallest_picture():
    picture = Image.new("RGB", (400, 300), "white")
    inks = [(0, 114, 178), (0, 158, 115), (213, 94, 0)]
    for row, ink in enumerate(inks):
        picture.paste(ink, (0, 40 * row, 400, 40 * row + 2))
    picture.paste(Image.linear_gradient("L").resize((400, 150)), (0, 150))  # greys, which are many
    reduced = np.asarray(reports._reduce_colours(picture, 16).convert("RGB")).astype(int)
    for row, ink in enumerate(inks):
        assert np.abs(reduced[40 * row, 0] - ink).max() < 30


def test_an_image_inside_a_figure_is_read_as_nbdev_saves_it():
    source = "data:image/png;base64,iVBORw0KGgo="
    figure = go.Figure(layout={"images": [{"source": source}]})
    saved = json.loads(figure.to_json())
    saved["layout"]["images"][0]["source"] = [source]
    assert reports._saved_figure({"application/vnd.plotly.v1+json": saved}).layout.images[0].source == source


@pytest.mark.skipif(find_browser() is None, reason="no Chromium that could draw what is missing")
def test_every_committed_figure_has_a_picture():
    missing = []
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        figures = list(reports._shown_figures(cells))
        size = sum(len(json.dumps(output)) for output in outputs) - sum(
            len(str(data.get("image/png", ""))) for data in figures
        )
        if size < NO_ROOM and any("image/png" not in data for data in figures):
            missing.append(f"python -m complearn.analysis.claims.reports --pictures {path.relative_to(ROOT)}")
    assert not missing, "figures without a picture; draw them: " + "; ".join(missing)


def test_hidden_places_lie_where_the_square_was():
    """Places every 8 of 30 pixels end at pixel 24, and not at the picture's edge."""
    figure = occlusion_figure(np.zeros((30, 30, 3), np.uint8), {"plain": np.zeros((4, 4))}, "dog", stride=8)
    assert list(figure.data[1].x) == [0, 8, 16, 24]
    assert square_size(224) == (32, 8) and square_size(30, stride=8) == (4, 8) and square_size(30, window=12) == (12, 3)

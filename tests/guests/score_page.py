"""An app from outside complearn: a page with the numbers of a results file."""

import ipywidgets

from complearn.apps.pages import APPS
from complearn.core.results import Result


@APPS.register("score_page")
def show_numbers(results: str):
    rows = Result.read(results).table
    table = rows[["method", "split", "metric", "value"]].to_html(index=False)
    return ipywidgets.HTML(f"<h2>{len(rows)} numbers</h2>{table}")

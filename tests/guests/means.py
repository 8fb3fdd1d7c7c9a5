"""A figure from outside complearn: the mean of every method as a bar."""

import plotly.graph_objects as go

from complearn.core.figures import FIGURES


@FIGURES.register("means")
def draw_means(rows, metric: str = "accuracy", title: str = "Means over seeds"):
    means = rows[rows.metric == metric].groupby("method").value.mean()
    figure = go.Figure(go.Bar(x=means.index, y=means), layout={"title": title})
    return figure.update_yaxes(title=metric)

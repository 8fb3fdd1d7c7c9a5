"""What a warm process has ready before it forks a training: imports, and a table that every small world needs."""

import torch._dynamo  # noqa: F401  imported late by the optimizer

import complearn.data.worlds.world  # noqa: F401, I001
import complearn.launch  # noqa: F401
from complearn.data.worlds.rendering import _distance_tables

_distance_tables()

"""How often the tests of faults try, and what they counted, for `docs/faults.md`: `make faults` names the file for the
counts, and tries several times as often as `make test-all`."""

import json
import os
from pathlib import Path

from complearn.core.files import write_json
from complearn.core.locks import hold


def trials(usual, counted):
    """How many trials there are: `counted` where COMPLEARN_FAULTS names a file for the counts."""
    return counted if os.environ.get("COMPLEARN_FAULTS") else usual


def note(table, what, **counts):
    """Keep the counts of a test that has passed, where COMPLEARN_FAULTS names a file for them."""
    if not (name := os.environ.get("COMPLEARN_FAULTS")):
        return
    path = Path(name).absolute()
    with hold(path.parent, f".{path.name}.lock", wait=True, passing=True):
        values = json.loads(path.read_text()) if path.exists() else {}
        tables = values.setdefault("now", {})
        tables[table] = dict(sorted({**tables.get(table, {}), what: counts}.items()))
        write_json(path, {**values, "now": dict(sorted(tables.items()))})

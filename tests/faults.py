"""What the tests of faults counted, for `docs/faults.md`: `make faults` names the file for the counts."""

import json
import os
from pathlib import Path

from complearn.core.files import write_json
from complearn.core.locks import hold


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

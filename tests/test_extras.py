"""The base alone: what works, what names the command that adds it. In a process that finds no other package."""

import importlib.metadata
import itertools
import os
import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

import gar.extras
from gar.errors import MissingPackageError
from gar.extras import extra_requirements, require_extra
from tests.docs.pages import PAGES, ROOT
from tests.support.errors import raises
from tests.support.processes import completed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USER_FILES = [*PAGES, ROOT / "Makefile", *(ROOT / "scripts").glob("*.sh"), *(ROOT / "src/gar").rglob("*.py")]

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
sys.meta_path.insert(0, Hidden())
import importlib.metadata
version = importlib.metadata.version
def known(name):
    if name.lower() in {distributions!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = known
"""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_dependencies(names: list[str]) -> set[str]:
    """Distributions by name, and those that they require in this environment."""
    found: set[str] = set()
    while names:
        name = plain(names.pop())
        if name in found:
            continue
        found.add(name)
        try:
            requirements = map(Requirement, importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:
            continue
        names += [each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def with_the_base_alone(code: str, *extras: str) -> tuple[int, str, str]:
    """Run code where nothing but `gar` and the packages of `pip install .`, or of these extras, can be imported."""
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    base = with_dependencies([Requirement(each).name for each in itertools.chain(*lists)]) | {"gar-rl"}
    base.add("typeguard")  # jaxtyping looks for it
    owners = importlib.metadata.packages_distributions()
    names = {module for module, owner in owners.items() if not base & set(map(plain, owner))}
    hidden = {plain(owner) for module in names for owner in owners[module]} - base
    assert {"trl", "datasets", "pandas"} <= names
    assert not {"torch", "numpy"} & names
    done = completed([sys.executable, "-c", HIDE.format(names=names, distributions=hidden) + code], env={**os.environ})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_base_has_every_public_name_but_that_of_trl_and_verifies():
    code = """
import gar
missing = {}
for name in gar.__all__:
    try:
        getattr(gar, name)
    except gar.GarError as error:
        missing[name] = str(error)
import gar.core, gar.data, gar.methods, gar.records, gar.settings, gar.integrations.slime
if __name__ == "__main__":
    with gar.Verifier() as verifier:
        print(verifier.verify(["<think>.</think><answer>3/4</answer>"], ["0.75"])[0].grade)
    print(*(f"{name}: {text}" for name, text in missing.items()), sep="\\n")
"""
    status, out, err = with_the_base_alone(code)
    assert (status, err) == (0, "")
    verdict, *missing = out.splitlines()
    assert verdict == "1.0"
    assert [line.partition(":")[0] for line in missing] == ["GARTrainer"]
    for line in missing:
        assert re.search("needs .*transformers, trl, not installed", line)
        assert line.endswith("pip install '.[train]'")


@pytest.mark.parametrize(("command", "extra"), [("train --preset demo", "train"), ("report", "train"), ("data", "cli")])
def test_a_command_without_its_extra_prints_one_line_before_anything_is_loaded(command, extra):
    code = f"""
from gar.cli.main import main
status = main({command.split()!r})
print(status, sorted({{"torch", "pydantic", "numpy"}} & {{*sys.modules}}))
"""
    status, out, err = with_the_base_alone(code)
    assert (status, out) == (0, "1 []\n")
    name = command.partition(" ")[0]
    assert re.fullmatch(rf"gar {name}: this command needs .*tyro.*: pip install '\.\[{extra}\]'\n", err)


def test_what_a_command_imports_late_is_missing_in_one_line_too():
    code = "from gar.cli.main import main\nprint(main(['data', 'check', 'owner/name']))"
    status, out, err = with_the_base_alone(code, "cli")
    assert (status, out) == (0, "1\n")
    line = r"gar data: this command with these arguments needs .*transformers.*: pip install '\.\[train\]'\n"
    assert re.fullmatch(line, err)


def test_require_extra_reads_the_metadata_and_extras_in_extras(monkeypatch):
    monkeypatch.setattr(gar.extras.importlib.metadata, "requires", lambda _: [
        "torch>=2.11", 'gar-rl[cli,more]; extra == "train"', 'nosuch<2,>=1; extra == "cli"', "pytest; extra == 'more'",
        "other; extra == 'train2'",
    ])  # fmt: skip
    assert list(extra_requirements("train")) == ["nosuch<2,>=1", "pytest"]
    with raises(MissingPackageError, "missing-package", "gar train needs nosuch, not installed"):
        require_extra("train", "gar train")
    require_extra("more", "gar more")
    monkeypatch.setattr(gar.extras, "installed_version", {"gar-rl": "1", "verl": "0.9.1"}.get)
    with raises(MissingPackageError, "missing-package", "In an environment without verl, run: "):
        require_extra("more", "gar more")


def test_every_extra_that_is_named_exists_and_no_user_is_told_to_leave_out_dependencies():
    extras = set(PROJECT["optional-dependencies"])
    for path in USER_FILES:
        text = path.read_text(encoding="utf-8")
        named = {name for found in re.findall(r"['\"]\.\[([\w,]+)\]", text) for name in found.split(",")}
        assert named <= extras, path.name
        if path.name not in ("Makefile", "test_install.sh", "gpu_wheels.sh"):
            assert "--no-deps" not in text, path.name

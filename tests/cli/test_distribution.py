"""What is published: archives that are complete and small, and an install without torch on every Python."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import pairton

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSIONS = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["classifiers"]))
MOST_BYTES = 12_000_000  # of an archive


def run(*arguments, **options):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Source archive and wheel; built without isolation, since the backend is in the test environment."""
    folder = tmp_path_factory.mktemp("dist")
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, env=environment)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.mark.long
def test_archives_are_complete_small_and_presentable(archives):
    wheel, source = archives
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    assert max(path.stat().st_size for path in archives) < MOST_BYTES
    inside = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in inside} == {"pairton", f"pairton-{pairton.__version__}.dist-info"}
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "mkdocs.yml", "Makefile", "docs/README.md"}
    assert wanted <= packed
    assert not [
        name for name in packed | set(inside) if "__pycache__" in name or name.startswith((".venv", "site/"))
    ]


def interpreters():
    """Interpreters of the Pythons that we name, by version: on the path, or in pyenv."""
    found = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        candidates = [*map(str, pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
        for candidate in filter(None, candidates):
            asked = subprocess.run([candidate, "--version"], capture_output=True, text=True)
            if asked.returncode == 0 and asked.stdout.startswith(f"Python {version}."):
                found[version] = candidate
                break
    return found


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_the_light_install_works(version, archives, tmp_path):
    python = interpreters().get(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    run(python, "-m", "venv", tmp_path / "env")
    light = tmp_path / "env" / "bin" / "python"
    run(light, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", archives[0])
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    installed = run(light, "-m", "pip", "list", "--format=freeze", env=alone).lower()
    assert not re.search(r"^(torch|lightning|matplotlib|pythia8mc|dask)==", installed, re.M)
    where = {"cwd": tmp_path, "env": alone}
    run(light, "-m", "pairton", "reconstruct", "sample:ttbar_allhad", "-o", "out.parquet", **where)
    assert "chi2" in run(light, "-m", "pairton", "evaluate", "sample:ttbar_allhad", "--baseline", "chi2", **where)
    script = "import pairton; print(len(pairton.reconstruct(pairton.read('sample:ttbar_allhad')[:20]).t.mass))"
    assert run(light, "-c", script, **where).strip() == "20"
    missing = subprocess.run(
        [light, "-m", "pairton", "train", "cpu", "--data", "x.h5"], capture_output=True, text=True, **where
    )
    assert missing.returncode == 2
    assert 'pip install "pairton[train]"' in missing.stderr


def floors(*extras):
    """The lowest allowed version of every dependency, and of those of the extras, as pip takes them."""
    lines = [
        *PROJECT["dependencies"],
        *(line for extra in extras for line in PROJECT["optional-dependencies"][extra]),
    ]
    return [re.sub(r"^([\w.-]+)>=([\w.]+).*", r"\1==\2", line) for line in lines]


@pytest.mark.long
def test_the_lowest_versions_work(archives, tmp_path):
    run(interpreters()[VERSIONS[0]], "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    lowest = floors("report", "dask", "http", "generate")  # torch: its old builds bring CUDA, several gigabytes
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", archives[0], *lowest)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (
        "reconstruct",
        "reconstruct sample:ttbar_allhad -o out.parquet",
        "convert sample:ttbar_allhad events.root",
        "convert sample:ttbar_allhad events.h5",
        "reconstruct events.root -o out.root",
        "reconstruct events.h5 -o out.h5",
        "inspect out.root",
        "evaluate sample:ttbar_allhad --baseline chi2 --report page.html",
        "display sample:ttbar_allhad -o event.png",
        "generate ttbar_allhad -n 50 -o made.h5",
    ):
        run(python, "-m", "pairton", *command.split(), cwd=tmp_path, env=alone)


def test_actions_are_pinned_by_commit():
    text = "".join(path.read_text("utf-8") for path in (ROOT / ".github/workflows").glob("*.yml"))
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert not [name for name in used if not re.search(r"@[0-9a-f]{40}$", name)]


def test_the_workflows_test_the_pythons_that_we_name():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]
    assert jobs["light"]["strategy"]["matrix"]["python"] == VERSIONS
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"


def test_hooks_use_the_tested_version_of_ruff():
    pinned = re.search(r"^ruff==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)[0]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    assert {name for hook in hooks for name in hook.get("additional_dependencies", ())} == {pinned}


def test_the_newest_section_of_the_changelog_is_this_version():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)[1]
    assert pairton.__version__.partition(".dev")[0] == newest

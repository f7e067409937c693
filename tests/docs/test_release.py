"""What a release needs beside the code: paper, cards of models, metadata for Zenodo and conda-forge."""

import json
import re
import tomllib
from pathlib import Path

import click.testing
import pytest
import yaml

import pairton
from pairton.cli import cli
from pairton.models.storage import builtin_models

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "paper/paper.md").read_text("utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
SECTIONS = ("Summary", "Statement of need", "State of the field", "Software design", "Evidence and validation")
SECTIONS += ("Acknowledgements", "References")


def front_matter(text):
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1])


def test_the_paper_has_its_parts():
    about = front_matter(PAPER)
    assert set(about) == {"title", "tags", "authors", "affiliations", "date", "bibliography"}
    assert about["title"] == CITATION["title"]
    assert {author["affiliation"] for author in about["authors"]} <= {x["index"] for x in about["affiliations"]}
    assert tuple(re.findall(r"^# (.+)$", PAPER, re.M)) == SECTIONS
    assert 750 < len(PAPER.partition("# Summary")[2].split()) < 1750  # the bounds of JOSS


def test_the_paper_cites_every_entry_and_nothing_else():
    entries = (ROOT / "paper/paper.bib").read_text("utf-8")
    assert set(re.findall(r"@([a-z]\w+)[];]", PAPER)) == set(re.findall(r"^@\w+\{(\w+),", entries, re.M))
    for entry in entries.split("\n@")[1:]:
        assert re.search(r"doi = |url = ", entry), entry


def test_the_numbers_of_the_paper_are_those_of_the_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.findall(r"\.\d{3} ± \.\d{3}", PAPER)
    assert len(shown) == 2
    assert [row for row in shown if f"| {row} |\n" not in readme] == []


def test_zenodo_has_the_title_and_words_of_the_package():
    zenodo = json.loads((ROOT / ".zenodo.json").read_text("utf-8"))
    assert (zenodo["title"], zenodo["license"]) == (CITATION["title"], CITATION["license"])
    assert [author["name"] for author in zenodo["creators"]] == [one["name"] for one in CITATION["authors"]]


def test_the_recipe_of_conda_has_the_dependencies_of_the_package():
    text = (ROOT / "conda/recipe.yaml").read_text("utf-8")
    recipe = yaml.safe_load(re.sub(r"\$\{\{ (\w+) \}\}", r"\1", text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert recipe["requirements"]["run"][1:] == [line.replace(">", " >") for line in project["dependencies"]]
    assert recipe["context"]["version"] == pairton.__version__.partition(".dev")[0]


@pytest.mark.parametrize("name", builtin_models())
def test_every_card_has_front_matter_which_the_command_leaves_out(name):
    card = (builtin_models()[name] / "README.md").read_text("utf-8")
    about = front_matter(card)
    assert (about["license"], about["library_name"]) == ("mit", "pairton")
    assert {"tags", "doi"} <= set(about)
    shown = click.testing.CliRunner().invoke(cli, ["list", "models", name], catch_exceptions=False).output
    assert "library_name" not in shown
    assert f"# {name}: " in shown

"""The documentation as a site: `make docs`, in an environment that has the extra `docs`.

    python -m tests.docs_site [FOLDER] [--url ADDRESS] [--links]

Sphinx reads a copy of the pages in FOLDER/pages:

    docs/README.md         index.md, the front page
    docs/**/*.md           the same names; searching.md, as search.html is Sphinx's own
    examples/*.ipynb       examples/, with the outputs that `make docs-examples` has stored in them
    CHANGELOG.md           changelog.md; so is CONTRIBUTING.md
    a heading of the list  a page of its own, such as train.md, above its pages in the menu
    the docstrings         api/, a page for each package and each public name
    docs/site/try          try/, JupyterLite with recorded experiments (tests/docs_try.py)

In the copies, links between these files lead to the copies, and links to other files lead to the
repository. The site is in FOLDER/site/VERSION, beside those of other versions; switcher.json lists
them. What is wrong on a page (a dead link, a page that no list has) ends the build.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from det_jupyter import __version__
from det_jupyter.front.verbs.docs_pages import REPOSITORY
from tests.docs_try import SOURCES as TRY
from tests.docs_try import START, build_try, look_at

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "det_jupyter",
    "det_jupyter.hp",
    "det_jupyter.core",
    "det_jupyter.pytorch",
    "det_jupyter.errors",
)
HANDLES = (
    "front.notebook.handles.experiment_handles.NotebookExperiment",
    "client.handles.trial.Trial",
    "client.handles.rank.Rank",
    "client.handles.checkpoint.Checkpoint",
    "client.handles.compare.Comparison",
    "client.handles.models.Model",
    "client.handles.models.ModelVersion",
    "front.notebook.handles.templates.Templates",
)
INDEX = "docs/README.md"
TRY_START = f"try/{START}"
# A fence of code, in which nothing is a link; or a link to a file.
_LINK = re.compile(
    r"^```.*?^```|`[^`\n]+`|(?P<mark>!?)\[(?P<text>[^\]]*)\]"
    r"\((?![a-z]+:|#)(?P<target>[\w./-]+)(?P<end>#[\w-]+)?\)",
    re.MULTILINE | re.DOTALL,
)
_CELL = re.compile(r"^```(yaml)?\n(?=%%det_experiment)", re.MULTILINE)
_NOT_FOUND = "---\nnosearch: true\n---\n\n"
_SECTION = re.compile(r"^## (?P<title>.+)\n\n(?P<items>(?:- .*\n)+)", re.MULTILINE)
_ITEM = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\): (?P<about>.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the list of pages.

    Args:
        path: The file, from the repository's folder.
    """

    title: str
    path: str
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the list of pages, with a page of its own."""

    title: str
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        return self.title.lower().replace(" ", "-")


def sections() -> list[Section]:
    """Return the parts of the list of pages, in docs/README.md."""
    text = (ROOT / INDEX).read_text(encoding="utf-8")
    return [
        Section(
            found["title"],
            tuple(
                Item(item["title"], normpath(f"docs/{item['target']}"), item["about"])
                for item in _ITEM.finditer(found["items"])
            ),
        )
        for found in _SECTION.finditer(text)
    ]


@cache
def places() -> dict[str, str]:
    """Return each page's name among the copies by its path in the repository."""
    pages = {INDEX: "index.md", "docs/search.md": "searching.md"}
    pages |= {f"{name}.md": f"{name.lower()}.md" for name in ("CHANGELOG", "CONTRIBUTING")}
    for path in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.ipynb")]):
        name = path.relative_to(ROOT).as_posix()
        pages.setdefault(name, name.removeprefix("docs/"))
    return pages | {"docs/decisions": "decisions/index.md"}


def linked(text: str, source: str) -> str:
    """Return a page's Markdown with the links of its copy.

    Args:
        source: The page's path in the repository.
    """
    copies = places()
    here = PurePosixPath(copies[source]).parent.as_posix()

    def link(found: re.Match[str]) -> str:
        if found["target"] is None:
            return found[0]
        path = normpath(PurePosixPath(source).parent / found["target"])
        if ROOT / path == TRY:
            return f'<a href="{relpath(TRY_START, here)}">{found["text"]}</a>'  # no page of Sphinx
        if path.startswith("docs/images/"):
            return _picture(found, relpath(path.removeprefix("docs/"), here))
        target = relpath(copies[path], here) if path in copies else f"{REPOSITORY}{path}"
        return f"{found['mark']}[{found['text']}]({target}{found['end'] or ''})"

    return _LINK.sub(link, _CELL.sub("```ipython3\n", text))


def _picture(found: re.Match[str], path: str) -> str:
    """Return a picture; if it is there in light and dark, both, each for its theme."""
    if not path.endswith("-light.png"):
        return f"![{found['text']}]({path})"
    dark = path.replace("-light.", "-dark.")
    text = found["text"]
    return f"![{text}]({path}){{.only-light}}\n![{text}]({dark}){{.only-dark}}"


def toctree(names: list[str], caption: str = "") -> str:
    options = ":hidden:\n:maxdepth: 1\n" + (f":caption: {caption}\n" if caption else "")
    return "\n```{toctree}\n" + options + "\n" + "\n".join(names) + "\n```\n"


def section_page(section: Section) -> str:
    """Return the page of a section: its part of the list, and what is below it in the menu."""
    copies = places()
    names = [copies[item.path] for item in section.items]
    lines = [
        f"- [{item.title}]({name}): {item.about}"
        for item, name in zip(section.items, names, strict=True)
    ]
    if section.name == "reference":
        lines.append("- [Python](api/index.md): every public class and function.")
        names.append("api/index.md")
    return f"# {section.title}\n\n" + "\n".join(lines) + "\n" + toctree(names)


def decisions_page() -> str:
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in pages]
    lines = [f"- [{title}]({path.name})" for path, title in zip(pages, titles, strict=True)]
    about = "Why some things are as they are: what a newcomer would question."
    tree = toctree([path.name for path in pages])
    return f"# Decisions\n\n{about}\n\n" + "\n".join(lines) + "\n" + tree


def llms_txt(base: str = "") -> str:
    """Return what language models read of the site: a summary, and the pages' sources.

    Args:
        base: The site's address, with a slash at its end; "" for relative links.
    """
    copies = places()
    parts = [
        "# det_jupyter",
        "> Train PyTorch models on several GPUs from a Jupyter notebook: a cell submits an "
        "experiment and returns at once, background processes train it, and the notebook shows it "
        "live. Queue, hyperparameter searches, exact resume, reasons for each wait.",
    ]
    for section in sections():
        lines = [
            f"- [{item.title}]({base}_sources/{copies[item.path]}.txt): {item.about}"
            for item in section.items
        ]
        parts.append(f"## {section.title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def is_history(name: str) -> bool:
    """Whether a page says why or when something was made; users search for what and how."""
    return name.startswith("decisions/") or name == "changelog.md"


def stage(folder: Path) -> None:
    """Write the copies of all pages into an empty folder."""
    for source, name in places().items():
        path, copy = ROOT / source, folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".ipynb"):
            copy.write_text(_notebook(path), encoding="utf-8")
        elif path.is_file():
            text = linked(path.read_text(encoding="utf-8"), source)
            copy.write_text(_NOT_FOUND * is_history(name) + text, encoding="utf-8")
    names = [f"{section.name}.md" for section in sections()]
    for section in sections():
        (folder / f"{section.name}.md").write_text(section_page(section), encoding="utf-8")
    index = folder / "index.md"
    index.write_text(index.read_text(encoding="utf-8") + toctree(names), encoding="utf-8")
    (folder / "decisions/index.md").write_text(decisions_page(), encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", folder / "images")
    shutil.copy(ROOT / "docs/configuration.schema.json", folder)


def _notebook(path: Path) -> str:
    """Return a notebook as JSON, with the links of its copy."""
    source = path.relative_to(ROOT).as_posix()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"].setdefault("language_info", {})["pygments_lexer"] = "ipython3"
    texts = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    for cell in texts:
        cell["source"] = linked("".join(cell["source"]), source)
    texts[0]["source"] += f'\n\n<a href="{path.name}" download>Download this notebook</a>'
    return json.dumps(notebook)


def stage_api(folder: Path) -> None:
    """Write the pages from which Sphinx makes the API reference into a folder."""
    folder.mkdir()
    names = [f"{package}.md" for package in PACKAGES] + ["handles.md"]
    lines = "\n".join(f"- [`{name.removesuffix('.md')}`]({name})" for name in names)
    (folder / "index.md").write_text(f"# Python\n\n{lines}\n{toctree(names)}", encoding="utf-8")
    for package in PACKAGES:
        about = f".. automodule:: {package}\n   :no-members:\n\n.. currentmodule:: {package}"
        text = _listed(f"`{package}`", about, public_names(package))
        (folder / f"{package}.md").write_text(text, encoding="utf-8")
    about = "What functions of ``det_jupyter`` return."
    handles = [f"~det_jupyter.{name}" for name in HANDLES]
    (folder / "handles.md").write_text(_listed("Handles", about, handles), encoding="utf-8")


def _listed(title: str, about: str, names: list[str]) -> str:
    """Return a page with a table of names, each of which gets a page of its own."""
    rows = "\n".join(f"   {name}" for name in names)
    table = f".. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{rows}"
    return f"# {title}\n\n```{{eval-rst}}\n{about}\n\n{table}\n```\n"


def public_names(package: str) -> list[str]:
    """Return the public names of a package that have a page: its classes and functions."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == package and name[0] != "_"
    ]  # fmt: skip
    return [name for name in names if callable(getattr(module, name))]


def switcher(site: Path, url: str) -> list[dict[str, object]]:
    """Return the list of versions in a folder, newest first, as the theme reads it.

    Args:
        url: Where the folder is served, with a slash at its end.
    """
    names = sorted(
        (path.parent.name for path in site.glob("*/index.html")),
        key=lambda name: [int(part) for part in re.findall(r"\d+", name)],
        reverse=True,
    )
    return [
        {"name": name, "version": name, "url": f"{url}{name}/", "preferred": name == names[0]}
        for name in names
    ]


def build(folder: Path, builder: str = "html", url: str = "/") -> int:
    """Build the site, or check its links with another builder; returns Sphinx's exit status."""
    out = folder / builder
    for each in (folder / "pages", folder / "trees", out):  # with old trees, new stubs are missed
        shutil.rmtree(each, ignore_errors=True)
    stage(folder / "pages")
    stage_api(folder / "pages/api")
    strict = ["-W", "--keep-going", "-n", "-q"]
    paths = ["-c", ROOT / "docs/site", "-d", folder / "trees", folder / "pages", out]
    command = [sys.executable, "-m", "sphinx", "-b", builder, *strict, *map(str, paths)]
    done = subprocess.run(command, check=False)
    if builder == "html" and done.returncode == 0:
        for path in ROOT.glob("examples/*.ipynb"):
            shutil.copy(path, out / "examples")
        (out / "llms.txt").write_text(llms_txt(f"{url}{__version__}/"), encoding="utf-8")
        shutil.rmtree(folder / "try", ignore_errors=True)
        build_try(folder / "try", out / "try")
        _publish(out, folder / "site", url)
        look_at(folder / "site" / __version__ / "try")
    return done.returncode


def _publish(built: Path, site: Path, url: str) -> None:
    """Make what was built this version's folder of the site, and list the versions anew."""
    shutil.rmtree(site / __version__, ignore_errors=True)
    shutil.copytree(built, site / __version__)
    versions = switcher(site, url)
    (site / "switcher.json").write_text(json.dumps(versions, indent=1), encoding="utf-8")
    newest = f'<meta http-equiv="refresh" content="0; url={versions[0]["version"]}/">\n'
    (site / "index.html").write_text(newest, encoding="utf-8")
    print(site / "index.html")


def main() -> int:
    """Build the site, or check its links to other sites."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/docs")
    parser.add_argument("--url", default="/", help="where the versions are served, https://…/")
    parser.add_argument("--links", action="store_true", help="check links to other sites instead")
    arguments = parser.parse_args()
    return build(arguments.folder, "linkcheck" if arguments.links else "html", arguments.url)


if __name__ == "__main__":
    sys.exit(main())

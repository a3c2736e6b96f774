"""What mkdocs needs to build the site from pages that are also read in the repository (hooks of mkdocs.yml).

README.md becomes the site's first page. Files outside docs/ that a page links to become pages too, below source/:
Markdown as it is, other text as a block of code, folders as lists of links. Links to them are rewritten. Links to
public headers lead to Doxygen's pages, where tools/docs/build.sh has made them. Markdown that GitHub reads differently
from Python-Markdown (lists without an empty line before them, nested lists) is adapted. A link to nothing is left as
it is, so that mkdocs reports it. No threads; raises nothing on bad pages, which mkdocs reports.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = "gangway/client/include/"
DOXYGEN = ROOT / "build/docs/doxygen"  # what of it becomes part of the site, at reference/cpp/
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")  # its text may begin a line above
FENCE = re.compile(r" *(```|~~~)")
ITEM = re.compile(r"( *)([-*+]|\d+\.) ")
LANGUAGES = {
    ".cc": "cpp",
    ".h": "cpp",
    ".py": "python",
    ".go": "go",
    ".sh": "bash",
    ".toml": "toml",
    ".proto": "protobuf",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def site_path(path: str) -> str:
    """Where a path of the repository is on the site; "" for one that does not exist."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(HEADERS) and (page := doxygen_page(path)).is_file():
        return f"reference/cpp/{page.name}"
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    if (ROOT / path).is_file():
        return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"
    return ""


def doxygen_page(header: str) -> pathlib.Path:
    """The page of a public header: Doxygen escapes its name."""
    name = posixpath.basename(header).replace("_", "__").replace(".", "_8")
    return DOXYGEN / f"{name}.html"


def targets(text: str, path: str) -> dict[str, str]:
    """Link -> path in the repository, of the links of a page to other files."""
    found = {}
    for line in prose(text):
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:|/", match[2]):
                found[match[2]] = posixpath.normpath(
                    posixpath.join(posixpath.dirname(path), match[2])
                )
    return found


def prose(text: str) -> list[str]:
    """The lines outside fenced blocks of code."""
    lines, fenced = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            lines.append(line)
    return lines


def rewritten(text: str, path: str, at: str) -> str:
    """A page of `path` in the repository, with the links that it needs at `at` on the site."""
    moved = {}
    for link, target in targets(text, path).items():
        if site := site_path(target):
            moved[link] = posixpath.relpath(site, posixpath.dirname(at) or ".")

    def replace(match: re.Match[str]) -> str:
        return match[1] + moved.get(match[2], match[2]) + (match[3] or "") + match[4]

    lines, fenced = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            line = LINK.sub(replace, line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def adapted(text: str) -> str:
    """For Python-Markdown: an empty line before a list, and steps of four columns in one."""
    lines: list[str] = []
    fenced = False
    columns: list[int] = []  # where the text of each list item begins that the line is in
    for line in text.splitlines():
        item = None if fenced else ITEM.match(line)
        indent = len(line) - len(line.lstrip())
        after_empty = not lines or not lines[-1].strip()
        if line.strip() and not fenced:
            while columns and indent < columns[-1] and (item or after_empty):
                columns.pop()
        depth = len(columns)
        in_list = after_empty or lines[-1].startswith(" ") or ITEM.match(lines[-1])
        if item and not depth and not in_list:
            lines.append("")
        beyond = max(0, indent - columns[-1]) if columns else indent
        lines.append(" " * (4 * depth + beyond) + line.strip() if line.strip() else "")
        fenced ^= bool(FENCE.match(line))
        if item:
            columns.append(len(item[0]))
    return "\n".join(lines) + "\n"


def source_page(path: str) -> str:
    """The text of the page of a file or folder outside docs/."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(
            each.name for each in file.iterdir() if not each.name.startswith((".", "__"))
        )
        return f"# {path}/\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    text = file.read_text(errors="replace")
    if path.endswith(".md"):
        return text
    fence = "````" if "```" in text else "```"
    return f"# {path}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def pages_outside(linked: dict[str, str]) -> dict[str, str]:
    """Path in the repository -> text, of all pages that the pages of `linked` need, and these in turn. What a page
    of code or a list of files names is not followed further, but folders show their files.
    """
    pages: dict[str, str] = {}
    waiting = sorted(set(linked.values()))
    while waiting:
        path = waiting.pop()
        site = site_path(path)
        if path in pages or not site.startswith(("source/", "index.md")):
            continue
        pages[path] = source_page(path)
        if path.endswith(".md") or (ROOT / path).is_dir():
            base = path if path.endswith(".md") else f"{path}/index.md"
            waiting += targets(pages[path], base).values()
    return pages


# --- mkdocs calls these. ---


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File, InclusionLevel

    linked = {"README.md": "README.md"}
    for file in files.documentation_pages():
        path = f"docs/{file.src_uri}"
        linked |= {
            f"{path}:{link}": target for link, target in targets(file.content_string, path).items()
        }
    for path, text in sorted(pages_outside(linked).items()):
        at = site_path(path)
        base = f"{path}/index.md" if (ROOT / path).is_dir() else path
        inclusion = InclusionLevel.UNDEFINED if path == "README.md" else InclusionLevel.NOT_IN_NAV
        is_page = path.endswith(".md") or (ROOT / path).is_dir()
        content = rewritten(text, base, at) if is_page else text
        files.append(File.generated(config, at, content=content, inclusion=inclusion))
    style = pathlib.Path(__file__).with_name("site.css")
    files.append(File.generated(config, style.name, abs_src_path=os.fspath(style)))
    for made in sorted(DOXYGEN.glob("**/*")):
        if made.is_file():
            uri = f"reference/cpp/{made.relative_to(DOXYGEN).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=os.fspath(made)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    if page.file.generated_by is None:
        markdown = rewritten(markdown, f"docs/{uri}", uri)
    return adapted(markdown)

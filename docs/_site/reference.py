"""Two directives: the commands as their parsers declare them, and the fields of a struct with the code's comments."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Commands(SphinxDirective):
    """`{commands}`: a section for each command with its help, from the parser itself."""

    def run(self) -> list[nodes.Node]:
        """Ask each command's parser for its help."""
        from antiphon.cli import COMMANDS

        text = []
        for name, summary in COMMANDS.items():
            parser = argparse.ArgumentParser(
                prog=f"antiphon {name}",
                formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=86),
            )
            importlib.import_module(f"antiphon.commands.{name}").configure(parser)
            parser.add_argument(
                "--json", action="store_true", help="one JSON object on stdout; logs and progress on stderr"
            )
            text += [f"## antiphon {name}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
            text += ["```text", parser.format_help().rstrip(), "```", ""]
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


class Fields(SphinxDirective):
    """`{fields} package.module.Struct`: a table of its fields, their defaults, and the comment beside each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Read the class's source: the comments are where the meanings are."""
        module, _, name = self.arguments[0].rpartition(".")
        struct = getattr(importlib.import_module(module), name)
        self.env.note_dependency(str(Path(inspect.getfile(struct))))
        rows = [
            f"| `{field}` | {_code(f'{kind} = {default}' if default else kind)} | {comment} |"
            for field, kind, default, comment in fields(struct)
        ]
        head = ["| field | type, default | meaning |", "|---|---|---|"]
        return self.parse_text_to_nodes("\n".join([*head, *rows]))


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def fields(struct: type[Any]) -> list[tuple[str, str, str, str]]:
    """Give the name, type, default and comment of each field of a class, in the order of its source."""
    source = inspect.getsource(struct)
    lines = source.splitlines()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = []
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = ast.unparse(node.value) if node.value is not None else ""
            _, _, comment = lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :].partition("#")
            found.append((node.target.id, ast.unparse(node.annotation), default, comment.strip().replace("|", "\\|")))
    return found


def front_page(app: Sphinx, failed: Exception | None) -> None:
    """Lead from the folder's own index.html to the site's front page."""
    if failed is None and app.builder.name == "html":
        target = f"{app.config.root_doc}.html"
        (Path(app.outdir) / "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>Antiphon</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">Antiphon: the documentation</a>\n'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.add_directive("commands", Commands)
    app.add_directive("fields", Fields)
    app.connect("build-finished", front_page)
    return {"parallel_read_safe": True}

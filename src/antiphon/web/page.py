"""The one HTML skeleton and theme: a whole document with its style and script inside it, that opens offline."""

from __future__ import annotations

from importlib import resources

from markupsafe import Markup, escape


def asset(name: str) -> str:
    """Return a style sheet or script that lies beside this module."""
    return resources.files("antiphon.web").joinpath("assets", name).read_text(encoding="utf-8")


def page(title: str, body: Markup, *, script: str = "", style: str = "") -> str:
    """Return a whole document around `body`, which brings its own h1; it loads nothing.

    `style` and `script` come after the page's own; the script runs once the body is there. What comes from a trace
    must be markup already (`antiphon.web.elements`); only the title is escaped here.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="antiphon">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<script>{asset("theme.js")}</script>
<style>
{asset("page.css")}
{style}
</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="bar"><span class="brand">Antiphon</span>
<button type="button" id="theme" hidden>Theme</button></header>
<main id="content" tabindex="-1">
{body}
</main>
<script>
{asset("page.js")}
{script}
</script>
</body>
</html>
"""

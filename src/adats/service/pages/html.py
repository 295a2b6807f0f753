"""The frame of every page, and small parts of them. All that comes from outside is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

__all__ = ["escape", "experiment_url", "figure", "page", "sign_in_page", "table", "task_url"]


def page(title: str, body: str, *, tenant: str = "") -> bytes:
    """`tenant` is whose experiments they are, if somebody has signed in for that."""
    leave = (
        f'<form method="post" action="/sign-out"><span class="soft">{escape(tenant)}</span> '
        "<button>Sign out</button></form>"
        if tenant
        else ""
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        '<link rel="stylesheet" href="/page.css"><link rel="icon" href="data:,">'
        '<script src="/page.js" defer></script></head><body>'
        '<header><a href="/"><b>adats</b></a><a href="/">Experiments</a><a href="/docs">API</a>'
        f"{leave}</header><main>{body}</main></body></html>\n"
    ).encode()


def sign_in_page(wrong: str = "", next_page: str = "/") -> bytes:
    said = f'<p class="alarm" role="alert">{escape(wrong)}</p>' if wrong else ""
    body = (
        '<form class="sign-in" method="post" action="/sign-in"><h1>Sign in</h1>'
        '<label for="key">A key of this service (<code>adats keys add</code>)</label>'
        '<input id="key" name="key" type="password" autocomplete="off" required autofocus>'
        f'<input type="hidden" name="next" value="{escape(next_page)}">{said}'
        "<button>Sign in</button></form>"
    )
    return page("Sign in · adats", body)


def experiment_url(name: str) -> str:
    return f"/experiments/{quote(name, safe='')}"


def task_url(name: str, task: str) -> str:
    return f"{experiment_url(name)}/tasks/{quote(task, safe='')}"


def figure(part: str, title: str, about: str, content: str) -> str:
    """A part of a page, which is brought up to date by itself."""
    return (
        f'<section data-part="{part}"><h2>{escape(title)}</h2>'
        f'<p class="soft">{escape(about)}</p>{content}</section>'
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int]) -> str:
    """Of cells that are HTML already; columns of numbers are set to the right."""
    kinds = [' class="n"' if i in numbers else "" for i in range(len(heads))]
    top = "".join(f"<th{k}>{escape(head)}</th>" for k, head in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'

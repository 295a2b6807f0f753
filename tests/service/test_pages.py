"""The pages: who may see them, what is on them, and that names are shown as text."""

import re
import time
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from adats.service import keys
from adats.service.counters import DAY, HOUR
from adats.service.keys import ApiKeys
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.pages import figures, sessions
from adats.service.pages.content import MOST_POINTS, periods_of, thinned
from adats.service.pages.figures import Line, Slope
from adats.service.stores.interface import Bucket, Counts
from adats.service.stores.sqlite import SQLiteKeys
from asgi import talk
from colour_vision import SIGHTS, ciede2000, lab
from postgres import new_store
from served import GAUSSIAN, Clock, Local, at_rest, call, process

CLICKS = {
    "model": "binary",
    "arms": ["plain", "<b>bold</b>"],
    "prior": {"default": {}},
    "control": "plain",
    "holdout": {"share": 0.3},
    "seed": 1,
}
MARKUP = "<script>alert(1)</script>"


def fill(path, name="clicks", spec=CLICKS, decisions=300, hours=50):
    """An experiment with some days behind it."""
    clock = Clock(time.time() - hours * HOUR)
    local, rng = Local(path, clock), np.random.default_rng(1)
    local.put(name, spec)
    for i in range(decisions):
        clock.time += hours * HOUR / decisions * 0.98
        task = MARKUP if i % 5 == 0 else f"t{i % 20}"
        made = local.decide(name, DecisionRequest(task))
        reward = float(rng.random() < (0.3 if made.action == "plain" else 0.6))
        if i % 10:
            local.reward(name, RewardRequest(made.decision_id, reward))
    local.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "x.db"
    fill(path)
    fill(path, "numbers", GAUSSIAN, decisions=3)
    with process(path) as running:
        yield running


class Stay(urllib.request.HTTPRedirectHandler):
    """No redirect is followed."""

    def redirect_request(self, *_):
        return None


def get(url, cookie=None, form=None, **headers):
    """Status, text and headers; a form is posted."""
    headers |= {} if cookie is None else {"Cookie": cookie}
    data = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=30) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def post(url, cookie=None, headers=(), **form):
    return get(url, cookie, form, **dict(headers))


class Tags(HTMLParser):
    """The elements of a page; it fails where one is closed that was not opened."""

    EMPTY = ("meta", "link", "input", "br")

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


# what is on them


def test_the_list_has_each_experiment_with_its_sentence(service):
    status, text, _ = get(f"{service.url}/")
    assert status == 200
    links = [a["href"] for tag, a in Tags(text).found if tag == "a"]
    assert {"/experiments/clicks", "/experiments/numbers"} <= set(links)
    assert "Keep running" in text


def test_an_experiment_has_its_figures_each_with_a_text_alternative(service):
    status, text, _ = get(f"{service.url}/experiments/clicks")
    tags = Tags(text).found
    assert status == 200
    pictures = [a for tag, a in tags if tag == "svg"]
    assert len(pictures) == 5
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in pictures)
    parts = {a["data-part"] for _, a in tags if "data-part" in a}
    assert parts >= {"verdict", "lift", "prior", "shrinkage", "best", "allocation", "health"}
    assert "curl -X PUT" in text
    assert "300 decisions" in text


def test_names_are_text_and_never_markup(service):
    for path in ("", f"/tasks/{urllib.parse.quote(MARKUP, safe='')}"):
        status, text, _ = get(f"{service.url}/experiments/clicks{path}")
        assert status == 200
        scripts = [a for tag, a in Tags(text).found if tag == "script"]
        assert scripts == [{"src": "/page.js", "defer": None}]
        assert "<b>bold" not in text
        assert "&lt;b&gt;bold" in text


def test_a_task_has_prior_data_and_belief_side_by_side(service):
    status, text, _ = get(f"{service.url}/experiments/clicks/tasks/t1")
    assert status == 200
    said = re.sub(r"<[^>]+>", " ", text)
    answer = call(f"{service.url}/v1/experiments/clicks/tasks/t1")[1]
    for part in answer["parts"]:
        assert figures.percent(part["mean"]) in said
        assert figures.percent(part["from_task"]) in said
    assert said.count("yes") + said.count(" no ") >= 10  # its decisions


def test_pages_of_what_is_not_there(service):
    for path in ("/experiments/other", "/experiments/clicks/tasks/other"):
        status, text, _ = get(service.url + path)
        assert status == 404
        assert "there is no" in text


def test_pages_need_nobody_else_and_may_do_nothing_but_show(service):
    _, text, headers = get(f"{service.url}/experiments/clicks")
    rule = headers["Content-Security-Policy"]
    assert "default-src 'none'" in rule
    assert "unsafe" not in rule
    assert headers["X-Content-Type-Options"] == "nosniff"
    tags = Tags(text).found
    assert not [a for _, a in tags if "style" in a or any(name.startswith("on") for name in a)]
    away = [a.get("href") or a.get("src") or "" for _, a in tags]
    assert not [link for link in away if link.startswith(("http", "//"))]


def test_a_page_is_small_and_is_kept_for_some_seconds(service):
    url = f"{service.url}/experiments/clicks?asked=now"  # nobody has asked for that before
    first = get(url)[1]
    assert len(first) < 150_000
    call(f"{service.url}/v1/experiments/clicks/decide", "POST", {"task": "new"})
    assert get(url)[1] == first


def test_the_script_is_short():
    script = files("adats.service.pages").joinpath("page.js").read_text()
    assert len(script.splitlines()) <= 100


def test_the_same_pages_on_postgresql():
    calls = [("PUT", "/v1/experiments/x", CLICKS)]
    for i in range(30):
        made = {"task": f"t{i % 3}", "decision_id": str(i)}
        calls.append(("POST", "/v1/experiments/x/decide", made))
        told = {"decision_id": str(i), "reward": i % 2}
        calls.append(("POST", "/v1/experiments/x/reward", told))
    url = new_store("pages")
    talk(url, calls)
    at_rest(url)
    paths = ("/", "/experiments/x", "/experiments/x/tasks/t1")
    answers = talk(url, [("GET", path) for path in paths])
    assert [status for status, _ in answers] == [200] * 3
    assert "30 decisions" in answers[1][1]
    assert answers[1][1].count('href="/experiments/x/tasks/') == 3
    assert "Milliseconds" in answers[1][1]


# who may see them


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    path = tmp_path_factory.mktemp("guarded") / "x.db"
    fill(path, decisions=20)
    with SQLiteKeys(path) as kept:
        made = {tenant: keys.new_key(tenant, write=False) for tenant in ("default", "other")}
        for _, row in made.values():
            kept.add(row)
    with process(path) as running:
        yield running.url, {tenant: key for tenant, (key, _) in made.items()}, path


def signed_in(url, key, to="/"):
    status, _, headers = post(f"{url}/sign-in", key=key, next=to)
    assert status == 303
    return headers["Set-Cookie"], headers["Location"]


def test_without_a_session_one_is_asked_to_sign_in(guarded):
    url, _, _ = guarded
    for path in ("/", "/experiments/clicks", "/experiments/clicks/tasks/t1"):
        status, text, headers = get(url + path)
        assert (status, text) == (303, "")
        assert headers["Location"] == f"/sign-in?next={path}"
    assert get(f"{url}/sign-in?next=/experiments/clicks")[0] == 200


def test_a_key_opens_the_pages_of_its_tenant_and_no_others(guarded):
    url, own, _ = guarded
    set_cookie, to = signed_in(url, own["default"], "/experiments/clicks")
    assert to == "/experiments/clicks"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(set_cookie.split("; "))
    assert "Secure" not in set_cookie
    cookie = set_cookie.partition(";")[0]
    assert get(f"{url}/experiments/clicks", cookie)[0] == 200
    other = signed_in(url, own["other"])[0].partition(";")[0]
    assert get(f"{url}/experiments/clicks", other)[0] == 404
    assert "clicks" not in get(f"{url}/", other)[1]


def test_a_session_opens_nothing_but_pages(guarded):
    url, own, _ = guarded
    cookie = signed_in(url, own["default"])[0].partition(";")[0]
    assert get(f"{url}/v1/experiments", cookie)[0] == 401


@pytest.mark.parametrize("wrong", ["", "adats_00000000_x", "x" * 200, "ключ"])
def test_a_wrong_key_opens_nothing(guarded, wrong):
    status, text, headers = post(f"{guarded[0]}/sign-in", key=wrong)
    assert status == 403
    assert "There is no such key." in text
    assert "Set-Cookie" not in headers


def test_a_form_may_not_be_long(guarded):
    assert post(f"{guarded[0]}/sign-in", key="x" * 10_000)[0] == 413


@pytest.mark.parametrize("to", ["https://elsewhere", "//elsewhere", "/\\elsewhere", "x"])
def test_signing_in_leads_to_no_other_place(guarded, to):
    url, own, _ = guarded
    assert signed_in(url, own["default"], to)[1] == "/"


def test_signing_out_ends_it(guarded):
    url, own, _ = guarded
    cookie = signed_in(url, own["default"])[0].partition(";")[0]
    status, _, headers = post(f"{url}/sign-out", cookie)
    assert (status, headers["Location"]) == (303, "/sign-in")
    assert "Max-Age=0" in headers["Set-Cookie"]


def test_behind_tls_the_cookie_is_for_tls_only(guarded):
    url, own, _ = guarded
    tls = {"X-Forwarded-Proto": "https"}
    _, _, headers = post(f"{url}/sign-in", headers=tls, key=own["default"])
    assert "Secure" in headers["Set-Cookie"].split("; ")


def test_sessions_end_with_time_with_their_key_and_when_they_are_changed():
    key, row = keys.new_key("t", write=True)
    known = ApiKeys([row])
    session = sessions.new_session(known, key, now=1000.0)
    access = sessions.access_of(known, session, now=1000.0 + sessions.LASTS - 1)
    assert access == ("t", False)
    assert sessions.access_of(known, session, now=1001.0 + sessions.LASTS) is None
    assert sessions.access_of(ApiKeys([]), session, now=1000.0) is None
    name, until, seal = session.split(".")
    changed = [f"{name}.{int(until) + 1}.{seal}", f"{name}.{until}.{'0' * 64}", f"{name}.{until}"]
    for other in [*changed, "", "x", f"{name}.x.{seal}", f"{name}.{until}.ü"]:
        assert sessions.access_of(known, other, now=1000.0) is None
    assert sessions.new_session(known, key + "x") is None


# figures


def test_colours_are_told_apart_by_everybody_and_texts_can_be_read():
    style = files("adats.service.pages").joinpath("page.css").read_text()
    light, dark = re.findall(r":root \{ ?([^}]*)\}", style)[:2]
    for text in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", text))
        lines = [colours[f"c{i}"] for i in range(figures.COLOURS)]
        for sight in SIGHTS:
            seen = [lab(colour, sight) for colour in lines]
            apart = [ciede2000(a, b) for i, a in enumerate(seen) for b in seen[:i]]
            assert min(apart) > 19, sight
        paper = colours["paper"]
        for name in ("ink", "soft", "bad", "good", "link"):
            assert contrast(colours[name], paper) >= 4.5, name
            assert name == "link" or contrast(colours[name], colours["wash"]) >= 4.5, name
        assert min(contrast(colour, paper) for colour in lines) >= 3.0


def contrast(one, two):
    """Of two colours, as the guidelines for accessible pages define it."""
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    whole = colour if len(colour) == 7 else "#" + "".join(2 * c for c in colour[1:])
    rgb = np.array([int(whole[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0"), (0.05, "0.05"), (0.1234, "0.123"), (12.345, "12.3"), (1234.5, "1,234"),
     (-0.5, "-0.5"), (float("nan"), "–"), (float("inf"), "–")],
)  # fmt: skip
def test_numbers_have_three_digits_that_matter(value, said):
    assert figures.number(value) == said


def test_a_figure_stays_within_its_box_whatever_it_shows():
    nan = float("nan")
    cases = [
        ([1.0], [Line("a", [0.0])]),
        ([1.0, 2.0], [Line("a", [nan, nan], [nan, nan], [nan, nan])]),
        (
            [1.0, 2.0, 1e6],
            [Line("a", [1e-9, 0.0, 5.0], [0.0] * 3, [1e9] * 3), Line("b", [5.0] * 3)],
        ),
    ]
    for x, several in cases:
        text = figures.lines(x, several, alt="a", x_words=str, y_words=str, log=True, zero=True)
        Tags(text)
        assert "nan" not in text.replace("a nan", "")
        places = [float(v) for v in re.findall(r'[MLx] ?="?(-?[\d.]+)', text)]
        assert all(-1 <= place <= figures.WIDTH + 1 for place in places)
    slope = figures.slopes([Slope("a", "/x", 0, 0.5, 0.5)], alt="a", words=str)
    assert 'href="/x"' in slope


def test_periods_have_all_decisions_and_are_not_many():
    counts = {Bucket(1, DAY * i, DAY, '"a"', i % 2): Counts(3, counted=1) for i in range(200)}
    counts |= {Bucket(1, DAY * 200 + HOUR * i, HOUR, '"b"', 0): Counts(2) for i in range(50)}
    found = periods_of(counts, several=False)
    assert len(found) <= MOST_POINTS + 1
    assert sum(p.policy.decisions + p.holdout.decisions for p in found) == 600 + 100
    assert sum(sum(p.by_arm.values()) for p in found) == 300 + 100
    assert [p.end for p in found] == sorted({p.end for p in found})
    assert thinned(list(range(1000)))[::59] == [0, 999]


def test_the_demonstration_is_alive(tmp_path):
    with process(tmp_path / "unused.db", "--demo") as running:

        def decisions():
            return call(f"{running.url}/v1/experiments/e-mails/report")[1]["decisions"]

        before = decisions()
        assert before > 5000
        until = time.monotonic() + 20
        while decisions() == before:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert not (tmp_path / "unused.db").exists()

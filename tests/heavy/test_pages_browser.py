"""The pages as a person sees them, in a real browser."""

import numpy as np
import pytest

from adats.service import keys
from adats.service.demonstration import make_history
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.stores.sqlite import SQLiteKeys
from browser import browser
from served import GAUSSIAN, Local, call, process

pytestmark = pytest.mark.heavy

MARKUP = "<script>document.title='broken'</script>"
WIDTHS = (360, 800, 1400)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Three experiments of one tenant, one of another, and a task with a bad name."""
    path = tmp_path_factory.mktemp("pages") / "x.db"
    make_history(path, lambda *_: None)
    local, rng = Local(path), np.random.default_rng(1)
    local.put("odd", GAUSSIAN | {"arms": ["a", MARKUP]})
    for _ in range(20):
        made = local.decide("odd", DecisionRequest(MARKUP))
        local.reward("odd", RewardRequest(made.decision_id, float(rng.normal())))
    local.close()
    made = {tenant: keys.new_key(tenant, write=True) for tenant in ("default", "other")}
    with SQLiteKeys(path) as kept:
        for _, row in made.values():
            kept.add(row)
    with process(path, "--trust-clock") as running:
        own = {tenant: key for tenant, (key, _) in made.items()}
        call(f"{running.url}/v1/experiments/theirs", "PUT", GAUSSIAN, own["other"])
        yield running.url, own


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


@pytest.fixture
def visit(chromium, service):
    """Opens pages, as somebody who has signed in; nothing may fail, and nothing leave the host."""
    opened = []

    def make(tenant="default", **options):
        context = chromium.new_context(**options)
        opened.append(context)
        page = context.new_page()
        page.faults = []
        page.on("console", lambda said: page.faults.append(said.text))
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("request", lambda sent: page.faults.append(sent.url)
                if not sent.url.startswith((service[0], "data:")) else None)  # fmt: skip
        if tenant is not None:
            sign_in(page, service, tenant)
        return page

    yield make
    faults = [fault for context in opened for page in context.pages for fault in page.faults]
    for context in opened:
        context.close()
    assert faults == []


def sign_in(page, service, tenant, at="/"):
    url, own = service
    page.goto(url + at)
    page.get_by_label("A key of this service").fill(own[tenant])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(url + at)


def test_somebody_signs_in_reads_the_sentence_opens_a_task_and_signs_out(service, visit):
    url, own = service
    page = visit()
    page.get_by_role("link", name="e-mails").click()
    page.wait_for_url(f"{url}/experiments/e-mails")
    said = page.locator(".verdict").inner_text()
    assert said.endswith(".")
    decisions = page.get_by_text("decisions ·").inner_text()
    call(f"{url}/v1/experiments/e-mails/decide", "POST", {"task": "segment 1"}, own["default"])
    page.wait_for_function(
        "before => document.querySelector('[data-part=verdict]').innerText.indexOf(before) < 0",
        arg=decisions,
        timeout=20_000,
    )
    page.locator('[data-part="shrinkage"] a').first.press("Enter")  # others may lie above it
    page.wait_for_url(f"{url}/experiments/e-mails/tasks/**")
    assert page.get_by_role("heading", name="What is believed").is_visible()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{url}/sign-in")
    page.goto(f"{url}/experiments/e-mails")
    assert page.url == f"{url}/sign-in?next=/experiments/e-mails"


def test_a_wrong_key_is_refused_in_words(service, visit):
    page = visit(None)
    page.goto(f"{service[0]}/sign-in")
    page.get_by_label("A key of this service").fill("adats_00000000_wrong")
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("alert").inner_text() == "There is no such key."
    page.faults[:] = [fault for fault in page.faults if "403" not in fault]  # the browser's own


def test_tenants_see_only_their_own(service, visit):
    page = visit("other")
    assert page.get_by_role("link", name="theirs").is_visible()
    assert page.get_by_text("e-mails").count() == 0
    page.goto(f"{service[0]}/experiments/e-mails")
    assert page.get_by_text("there is no experiment 'e-mails'").is_visible()
    page.faults[:] = [fault for fault in page.faults if "404" not in fault]


def test_without_scripts_everything_is_there(service, visit):
    page = visit(java_script_enabled=False)
    page.goto(f"{service[0]}/experiments/e-mails")
    assert page.locator("svg").count() == 5
    assert page.locator(".verdict").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_and_texts_can_be_read_at_any_width(service, visit, width):
    page = visit(viewport={"width": width, "height": 900})
    for path in ("/", "/experiments/e-mails", "/experiments/e-mails/tasks/segment 1"):
        page.goto(service[0] + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.evaluate(
            "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
        )
        assert min(sizes, default=20) >= 10


def test_the_pointer_is_told_values(service, visit):
    page = visit()
    page.goto(f"{service[0]}/experiments/e-mails")
    box = page.locator('[data-part="prior"] svg').bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    said = page.locator("#tip").inner_text()
    assert "tasks" in said
    assert "%" in said


def test_the_keyboard_alone_is_enough(service, visit):
    page = visit(None)
    page.goto(f"{service[0]}/")
    page.wait_for_function("document.activeElement.id == 'key'")
    page.keyboard.type(service[1]["default"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{service[0]}/")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "e-mails":
            break
    shown = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(shown) != "none"
    page.keyboard.press("Enter")
    page.wait_for_url(f"{service[0]}/experiments/e-mails")


def test_it_can_be_printed(service, visit):
    page = visit()
    page.goto(f"{service[0]}/experiments/e-mails")
    page.emulate_media(media="print")
    assert not page.get_by_role("button", name="Sign out").is_visible()
    assert page.locator(".verdict").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_every_figure_has_a_text_alternative(service, visit):
    page = visit()
    page.goto(f"{service[0]}/experiments/headlines")
    for picture in page.locator("svg").all():
        assert len(picture.get_attribute("aria-label")) > 20


def test_markup_in_names_does_nothing(service, visit):
    page = visit()
    page.goto(f"{service[0]}/experiments/odd")
    assert page.title() == "odd · adats"
    page.locator('[data-part="shrinkage"] a').first.press("Enter")  # others may lie above it
    page.wait_for_url("**/tasks/**")
    assert MARKUP in page.locator("h1").inner_text()
    assert page.title() == f"{MARKUP} · adats"

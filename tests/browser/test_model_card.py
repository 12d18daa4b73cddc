"""The model card and the files of a version, in a real browser; the card is a stranger's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from pt2hub.domain.digests import digest_bytes
from support.registry import V4

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from support.browser import Axe, Shoot
    from support.site import Site

CARD = b"""# A net

It labels **product pictures**. See the [licence](LICENSE) and [the paper](https://example.com/paper).

| data set | accuracy |
|---|---|
| ours | 0.9 |

![figure 1](https://evil.example/figure.png)
<script>document.title = "taken over"</script><img src="https://evil.example/p.png" onerror="document.title='taken over'">
<style>body { display: none }</style><div style="position: fixed; inset: 0">over everything</div></main></body>
"""


def test_a_card_is_shown_and_loads_and_runs_nothing(site: Site, page: Page, axe: Axe, shoot: Shoot) -> None:
    model = "cards/net"
    files = {"README.md": CARD, "LICENSE": b"MIT", "labels.txt": b"<script>alert(1)</script>"}
    digests = {name: site.registry.blob(data).digest for name, data in files.items()}
    told = {**digests, "labels.txt": {"digest": digests["labels.txt"], "media_type": "text/html"}}
    site.registry.submit(model=model, targets=[V4], files=told)
    page.goto(f"/models/{model}/versions/1")  # `page` fails on requests to elsewhere and on refused contents
    card = page.locator(".card")
    expect(card.get_by_role("heading", name="A net")).to_be_visible()
    expect(card.get_by_role("cell", name="0.9")).to_be_visible()
    expect(card).to_contain_text("figure 1")
    assert page.title() == f"{model}@1 · pt2hub"
    assert card.locator("img, script, style, [style]").count() == 0
    paper = card.get_by_role("link", name="the paper")
    expect(paper).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(page.get_by_role("heading", name="Files", exact=True)).to_be_visible()
    for name, link in {
        "labels.txt": page.get_by_role("link", name="labels.txt"),
        "LICENSE": card.get_by_role("link", name="licence"),
    }.items():
        with page.expect_download() as saved:
            link.click()
        assert saved.value.suggested_filename == name
        assert digest_bytes(saved.value.path().read_bytes()) == digests[name]
    shoot(page, "model-card")
    axe(page)

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from iegopt.cli.html import page
from iegopt.devices import expand
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec

VOID = {"meta", "wbr"}
Plans = Callable[..., Plan]
Clusters = Callable[[int, int], ClusterSpec]


class Checked(HTMLParser):
    """Collects tags and texts, and fails where a tag is not closed."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page_holds_every_stage_in_every_part(plan_of: Plans, cluster_with: Clusters) -> None:
    plan = plan_of(2, 2)
    parsed = Checked(page(plan, expand(cluster_with(2, 4))))
    for stage in plan.stages:
        assert parsed.texts.count(stage.id) >= 4, stage.id  # graph, cost, timeline, table
    for title in ("Execution graph", "Placement", "Cost", "Timeline", "Stages", "Transfers", "Tightest constraints"):
        assert title in parsed.texts
    assert "1.34 GB" in parsed.texts
    nodes = [
        attrs["class"] for tag, attrs in parsed.tags if tag == "rect" and (attrs["class"] or "").startswith("node")
    ]
    assert len(nodes) == len(plan.stages)
    assert nodes.count("node tool") == 4
    bars = [attrs for tag, attrs in parsed.tags if tag == "rect" and (attrs["class"] or "").startswith("bar")]
    assert len(bars) == len(plan.stages)


def test_nothing_is_fetched(plan_of: Plans, cluster_with: Clusters) -> None:
    text = page(plan_of(), expand(cluster_with(2, 4)))
    assert "://" not in text
    assert "url(" not in text
    assert not {tag for tag, _ in Checked(text).tags} & {"link", "script", "img", "iframe", "object"}


@pytest.mark.slow
def test_chromium_draws_it(plan_of: Plans, cluster_with: Clusters, tmp_path: Path) -> None:
    """The page is taken as it was written (no tag repaired away), and its picture is not blank."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    file, picture = tmp_path / "plan.html", tmp_path / "plan.png"
    file.write_text(page(plan_of(2, 2), expand(cluster_with(2, 4))), encoding="utf-8")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    ran = subprocess.run(
        [chromium, *quiet, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    drawn, written = Checked(ran.stdout), Checked(file.read_text(encoding="utf-8"))
    assert [tag for tag, _ in drawn.tags if tag in {"rect", "path", "text", "td"}] == [
        tag for tag, _ in written.tags if tag in {"rect", "path", "text", "td"}
    ]
    subprocess.run(
        [chromium, *quiet, f"--user-data-dir={tmp_path / 'other'}", f"--screenshot={picture}", file.as_uri()],
        capture_output=True, timeout=120, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert picture.stat().st_size > 10_000  # a blank page compresses to less


def test_words_of_the_user_are_escaped(plan_of: Plans, cluster_with: Clusters) -> None:
    plan = plan_of()
    evil = "</title><script>alert('1')</script>\x1b[31m"
    stages = tuple(
        dataclasses.replace(stage, variant=evil, device_model=evil, bottleneck=evil) for stage in plan.stages
    )
    about = {
        name: {**entry, "refused": [{"options": 1, "reason": evil}]}
        for name, entry in plan.explanation["stages"].items()
    }
    explanation = {**plan.explanation, "summary": [evil], "stages": about}
    text = page(
        dataclasses.replace(plan, request=evil, cluster=evil, note=evil, stages=stages, explanation=explanation),
        expand(cluster_with(2, 4)),
    )
    assert "<script" not in text
    assert "\x1b" not in text
    assert "script" not in {tag for tag, _ in Checked(text).tags}


def test_its_size_follows_the_plan_not_the_cluster(plan_of: Plans, cluster_with: Clusters) -> None:
    plan = plan_of(2, 2)
    small, large = (len(page(plan, expand(cluster_with(hosts, 4 * hosts)))) for hosts in (4, 800))
    assert large < small + 2000


def test_a_plan_that_does_nothing_for_no_time(plan_of: Plans, cluster_with: Clusters) -> None:
    plan = plan_of()
    only = dataclasses.replace(plan.stages[0], start=0.0, finish=0.0, time=0.0)
    text = page(
        dataclasses.replace(plan, stages=(only,), transfers=(), makespan=0.0, deadline=None, explanation={}),
        expand(cluster_with(1, 1)),
    )
    assert "Transfers" not in Checked(text).texts


def test_a_kv_cache_that_lies_somewhere_is_drawn_as_memory(plan_of: Plans, cluster_with: Clusters) -> None:
    plan = plan_of()
    stages = (dataclasses.replace(plan.stages[0], kind="kv_location"), *plan.stages[1:])
    assert 'class="node memory"' in page(dataclasses.replace(plan, stages=stages), expand(cluster_with(2, 4)))

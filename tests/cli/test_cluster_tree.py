from collections.abc import Callable

from iegopt.cli.cluster_tree import Branch, cluster_tree
from iegopt.devices import expand
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec


def lines(branch: Branch, depth: int = 0) -> list[str]:
    stages = f" <- {', '.join(branch.stages)}" if branch.stages else ""
    own = [f"{'  ' * depth}{branch.label}: {branch.detail}{stages}"]
    return own + [line for child in branch.children for line in lines(child, depth + 1)]


def test_a_large_cluster_shows_used_groups_and_counts_the_rest(
    plan_of: Callable[..., Plan], cluster_with: Callable[[int, int], ClusterSpec]
) -> None:
    assert lines(cluster_tree(plan_of(1, 1), expand(cluster_with(1200, 400)))) == [
        "lab: 9,600 × H100, 400 × cpu-epyc-9654-2s",
        "  datacenter dc0: 9,600 × H100, 400 × cpu-epyc-9654-2s",
        "    rack rack0-0: 32 × H100",
        "      host gpu-h0: 8 × H100",
        "        gpu-0: H100 <- prefill (1/2), re-prefill-1 (1/2)",
        "        gpu-1: H100 <- prefill (2/2), re-prefill-1 (2/2)",
        "        6 more devices: 6 × H100",
        "      host gpu-h1: 8 × H100",
        "        gpu-8: H100 <- decode (1/2), decode-1 (1/2)",
        "        gpu-9: H100 <- decode (2/2), decode-1 (2/2)",
        "        6 more devices: 6 × H100",
        "      2 more hosts: 16 × H100",
        "    rack cpus: 400 × cpu-epyc-9654-2s",
        "      cpu-0: cpu-epyc-9654-2s <- tokenize, tool-1-0, output",
        "      cpu-2: cpu-epyc-9654-2s <- retrieval-1",
        "      398 more hosts: 398 × cpu-epyc-9654-2s",
        "    299 more racks: 9,568 × H100",
    ]


def test_a_small_cluster_is_shown_whole(
    plan_of: Callable[..., Plan], cluster_with: Callable[[int, int], ClusterSpec]
) -> None:
    tree = lines(cluster_tree(plan_of(1, 1), expand(cluster_with(2, 3))))
    assert not [line for line in tree if "more" in line]
    assert [line.strip() for line in tree if line.strip().startswith("cpu-")] == [
        "cpu-0: cpu-epyc-9654-2s <- tokenize, tool-1-0, output",
        "cpu-1: cpu-epyc-9654-2s",
        "cpu-2: cpu-epyc-9654-2s <- retrieval-1",
    ]

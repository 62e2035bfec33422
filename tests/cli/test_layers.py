import random

import pytest

from iegopt.cli.html.layers import layout

WIDTH, GAP = 100.0, 10.0


def test_a_chain_is_a_straight_line() -> None:
    place = layout(4, [(0, 1), (1, 2), (2, 3)], WIDTH, GAP)
    assert place.layer == (0, 1, 2, 3)
    assert place.x == (50.0, 50.0, 50.0, 50.0)
    assert place.width == WIDTH


def test_a_diamond_is_symmetric() -> None:
    place = layout(4, [(0, 1), (0, 2), (1, 3), (2, 3)], WIDTH, GAP)
    assert sorted(place.x[1:3]) == [50.0, 160.0]
    assert place.x[0] == place.x[3] == 105.0


def test_a_long_edge_goes_through_every_layer_between() -> None:
    place = layout(3, [(0, 1), (1, 2), (0, 2)], WIDTH, GAP)
    assert [layer for _, layer in place.paths[2]] == [0, 1, 2]
    assert abs(place.paths[2][1][0] - place.x[1]) >= WIDTH / 2


@pytest.mark.parametrize("seed", range(20))
def test_nodes_never_overlap_and_edges_go_down(seed: int) -> None:
    draw = random.Random(seed)
    nodes = draw.randint(1, 25)
    edges = [(a, b) for b in range(nodes) for a in range(b) if draw.random() < 0.15]
    place = layout(nodes, edges, WIDTH, GAP)
    for a, b in edges:
        assert place.layer[a] < place.layer[b]
    for a in range(nodes):
        assert -1e-6 <= place.x[a] - WIDTH / 2 < place.x[a] + WIDTH / 2 <= place.width + 1e-6
        for b in range(a):
            if place.layer[a] == place.layer[b]:
                assert abs(place.x[a] - place.x[b]) >= WIDTH + GAP - 1e-6

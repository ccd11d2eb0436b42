"""The kernels of a GPU against torch on the CPU; they run where there is one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip(
        "no GPU here: the kernels are compared with torch on machines that have one",
        allow_module_level=True,
    )

from clashsim.core.scene import Scene
from clashsim.fit.base import base_model
from clashsim.nets import fused
from clashsim.nets.impact import ImpactNet
from clashsim.nets.spline_table import SplineTable
from clashsim.nets.strike_table import StrikeTable
from clashsim.slides.law import SlideModel


@pytest.mark.parametrize("sizes", [(7,), (7, 6), (9, 7, 6), (6, 5, 7, 8)])
def test_a_map_on_the_card_is_the_map(sizes):
    rng, d = np.random.default_rng(0), len(sizes)
    table = SplineTable([0.2] * d, [1.0] * d, rng.normal(size=(*sizes, 15)))
    names = ("speed", "point", "deflection", "turn")[:d]
    here = StrikeTable(names, table, SlideModel({"friction": 0.3}, gyration=0.03))
    card = copy.deepcopy(here).to("cuda").float()
    strike = torch.tensor(
        rng.uniform(0, 1.2, (1003, d))
    )  # beyond the box as well, and no whole number of blocks
    pose, noise = torch.tensor(rng.normal(size=(1003, 3))), torch.tensor(rng.normal(size=(1003, 3)))
    there = [a.float().cuda() for a in (pose, strike, noise)]
    for mine, theirs in (
        (card.twist(there[1]), here.twist(strike)),
        (card(*there[:2]), here(pose, strike)),
        (card(*there), here(pose, strike, noise)),
    ):
        np.testing.assert_allclose(mine.cpu().numpy(), theirs.detach().numpy(), atol=2e-5)
    there[1].requires_grad_(True)
    card(*there[:2]).sum().backward()  # torch's own way, for the kernel has no gradient
    assert there[1].grad is not None and torch.isfinite(there[1].grad).all()


@pytest.mark.parametrize(
    ("width", "layers", "members", "inputs"),
    [(192, 5, 3, 24), (160, 5, 2, 19), (64, 3, 1, 32), (128, 2, 1, 5)],
)
def test_a_network_on_the_card_is_the_network(width, layers, members, inputs):
    net = ImpactNet(inputs, 3, width=width, layers=layers, members=members)
    x = torch.randn(1001, inputs) * 3 + 1
    net.fit_scale(x, torch.randn(1001, 3))
    with torch.no_grad():
        theirs, mine = net(x), fused.PackedNet(net.cuda())(x.cuda()).cpu()
    assert ((mine - theirs).norm(dim=-1) < 5e-3 * theirs.norm(dim=-1).median()).all()


def test_a_network_that_the_kernel_cannot_take_is_refused():
    net = ImpactNet(8, 3, activation="relu")
    assert not fused.fits(net)
    with pytest.raises(ValueError, match="silu"):
        fused.PackedNet(net)


def test_shipped_networks_fit():
    assert all(
        fused.fits(base_model(Scene.load(name)).net)
        for name in ("semi_cylinder", "square", "triangle", "puck")
    )

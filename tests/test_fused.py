"""The GPU kernels against torch on the CPU; they run where there is a GPU."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip(
        "no GPU on this machine: the kernels are compared with torch where there is one",
        allow_module_level=True,
    )

from clashsim.core.scene import Scene
from clashsim.fit.base import distilled_model
from clashsim.nets import fused
from clashsim.nets.impact import ImpactNet
from clashsim.nets.spline_table import SplineTable
from clashsim.nets.strike_table import StrikeTable
from clashsim.slides.law import SlideModel

ROWS = 1003  # no whole number of blocks


@pytest.mark.parametrize("sizes", [(7,), (7, 6), (9, 7, 6), (6, 5, 7, 8)])
def test_a_table_on_the_gpu_agrees_with_the_cpu(sizes):
    rng = np.random.default_rng(0)
    d = len(sizes)
    table = SplineTable([0.2] * d, [1.0] * d, rng.normal(size=(*sizes, 15)))
    names = ("speed", "point", "deflection", "turn")[:d]
    on_cpu = StrikeTable(names, table, SlideModel({"friction": 0.3}, gyration=0.03))
    on_gpu = copy.deepcopy(on_cpu).to("cuda").float()
    strike = torch.tensor(rng.uniform(0, 1.2, (ROWS, d)))  # beyond the box as well
    pose = torch.tensor(rng.normal(size=(ROWS, 3)))
    noise = torch.tensor(rng.normal(size=(ROWS, 3)))
    gpu_pose, gpu_strike, gpu_noise = (a.float().cuda() for a in (pose, strike, noise))
    for result, expected in (
        (on_gpu.twist(gpu_strike), on_cpu.twist(strike)),
        (on_gpu(gpu_pose, gpu_strike), on_cpu(pose, strike)),
        (on_gpu(gpu_pose, gpu_strike, gpu_noise), on_cpu(pose, strike, noise)),
    ):
        np.testing.assert_allclose(result.cpu().numpy(), expected.detach().numpy(), atol=2e-5)
    gpu_strike.requires_grad_(True)
    # By torch itself, for the kernel has no gradient.
    on_gpu(gpu_pose, gpu_strike).sum().backward()
    assert gpu_strike.grad is not None and torch.isfinite(gpu_strike.grad).all()


@pytest.mark.parametrize(
    ("width", "layers", "members", "inputs"),
    [(192, 5, 3, 24), (160, 5, 2, 19), (64, 3, 1, 32), (128, 2, 1, 5)],
)
def test_a_network_on_the_gpu_agrees_with_the_cpu(width, layers, members, inputs):
    net = ImpactNet(inputs, 3, width=width, layers=layers, members=members)
    x = torch.randn(1001, inputs) * 3 + 1
    net.fit_scale(x, torch.randn(1001, 3))
    with torch.no_grad():
        expected = net(x)
        result = fused.PackedNet(net.cuda())(x.cuda()).cpu()
    error = (result - expected).norm(dim=-1)
    assert (error < 5e-3 * expected.norm(dim=-1).median()).all()


def test_a_network_that_the_kernel_cannot_take_is_refused():
    net = ImpactNet(8, 3, activation="relu")
    assert not fused.fits(net)
    with pytest.raises(ValueError, match="silu"):
        fused.PackedNet(net)


def test_shipped_networks_fit():
    names = ("semi_cylinder", "square", "triangle", "puck")
    assert all(fused.fits(distilled_model(Scene.load(name)).net) for name in names)

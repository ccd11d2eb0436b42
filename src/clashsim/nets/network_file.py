"""Graph networks in safetensors files, and the one that comes with clashsim."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from clashsim.core.errors import RunError, quoted
from clashsim.core.parsing import parse_json
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.trained_domain import TrainedDomain

SHIPPED = "graph_meshes.safetensors"
_MAX_SIZE = 4096  # largest allowed value of `GraphNet.shape`
_MAX_REASON = 100  # characters of an error that a message quotes
# Exceptions from reading a damaged file, or one of another shape, into a network.
_DAMAGE = (
    SafetensorError,
    RunError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
)


def net_bytes(net: GraphNet, notes: dict[str, str] | None = None) -> bytes:
    """Content of a network's file.

    Args:
        net: The network.
        notes: How it was trained, kept as metadata.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}
    about = {"shape": json.dumps(net.shape), "domain": json.dumps(net.domain.as_json())}
    return save(tensors, metadata={**about, **(notes or {})})


def read_net(path: Path) -> GraphNet:
    """Read the network of a file, ready for evaluation."""
    try:
        net = _read(path)
    except FileNotFoundError:
        raise RunError(f"there is no network file {path.name!r}") from None
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise RunError(f"{path.name!r} holds no graph network of this version ({reason})") from None
    return net.eval()


@lru_cache(maxsize=1)
def shipped_net() -> GraphNet:
    """The network that comes with clashsim; its domain says what it was trained for."""
    return read_net(Path(str(resources.files("clashsim") / "nets" / SHIPPED)))


def _read(path: Path) -> GraphNet:
    """The network of a file; damage raises one of `_DAMAGE`."""
    with safe_open(path, framework="pt") as file:
        shape = parse_json(file.metadata()["shape"], "its shape", error=RunError)
        if not all(type(size) is int and 0 < size <= _MAX_SIZE for size in shape.values()):
            raise ValueError(f"its shape is {quoted(shape)}")
        # A network on the device "meta" takes no memory, so that the shape in a damaged file cannot
        # take it all before the tensors are known to have that shape.
        with torch.device("meta"):
            skeleton = GraphNet(**shape).state_dict()
        expected = {name: tensor.shape for name, tensor in skeleton.items()}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if {name: tensor.shape for name, tensor in tensors.items()} != expected:
            raise ValueError("its tensors do not have its shape")
        domain = parse_json(file.metadata()["domain"], "its domain", error=RunError)
        net = GraphNet(**shape, domain=TrainedDomain.from_json(domain))
        net.load_state_dict(tensors)
    return net

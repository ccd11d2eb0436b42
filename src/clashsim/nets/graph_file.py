"""Graph networks in safetensors files, and the one that comes with clashsim."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from clashsim.core.errors import RunError
from clashsim.nets.graph import GraphNet

SHIPPED = "graph_boxes.safetensors"


def net_bytes(net: GraphNet, notes: dict[str, str] | None = None) -> bytes:
    """A network with its shape and how it was trained."""
    return save({k: v.detach().cpu().contiguous() for k, v in net.state_dict().items()}, metadata={"shape": json.dumps(net.shape), **(notes or {})})


def read_net(path: Path) -> GraphNet:
    """The network of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            net = GraphNet(**json.loads(file.metadata()["shape"]))
            net.load_state_dict({k: file.get_tensor(k) for k in file.keys()})  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"there is no network file {path.name!r}") from None
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"{path.name!r} holds no graph network of this version ({' '.join(str(error).split())[:100]})") from None
    return net.eval()


@lru_cache(maxsize=1)
def shipped_net() -> GraphNet:
    """The network for boxes on a floor that comes with clashsim."""
    return read_net(Path(str(resources.files("clashsim") / "nets" / SHIPPED)))

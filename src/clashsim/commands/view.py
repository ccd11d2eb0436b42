"""`clashsim view`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.recorded import holds_trials, read_recorded
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.extras import require

if TYPE_CHECKING:
    from clashsim.cli import View
    from clashsim.core.scene import Scene
    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.view.session import PolicyLookup, ViewerSession
    from clashsim.view.strike_sources import StrikeSource

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_COARSE, _FINE = (
    0.005,
    0.002,
)  # s: timestep of the hybrid simulator with a slide model, which is exact for any, and without
_POLICY = "policy.safetensors"


def run(verb: View) -> None:
    """`clashsim view`."""
    require("viser", "viser", "viser")
    session = viewer_session(verb.run, trials=verb.trials, policy=verb.policy, route=verb.route)
    server = serve(verb.host, verb.port)
    from clashsim.view.page import Page

    page = Page(server, session)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for line in told(verb.host, server.get_port()):
                print(line, flush=True)
            threading.Event().wait()
        print("stopping ...", flush=True)
    finally:
        ended = page.end()
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()
        if not ended:
            os._exit(1)  # rather than crash in the middle of a step
    print("stopped")


def told(host: str, port: int) -> list[str]:
    """What to do with a page at an address."""
    local = host in _LOOPBACK
    shown = "localhost" if local or host in ("0.0.0.0", "::") else host
    lines = [
        f"the page is at http://{f'[{shown}]' if ':' in shown else shown}:{port} (stop with Ctrl-C)"
    ]
    if local:
        return [
            *lines,
            f"on a server over SSH, open it from your own machine with: ssh -L {port}:localhost:{port} {socket.gethostname()}",
        ]
    return [*lines, f"it listens on {host}: whoever reaches this machine can use the page"]


def serve(host: str, port: int) -> Any:
    """A server of viser at exactly this address, or a sentence on why not."""
    if not 0 <= port <= 65535:
        raise ParamError(f"--port must be 0 to 65535, got {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ParamError(
            f"the page cannot listen on {host} port {port} ({(error.strerror or str(error)).lower()}): choose another with --port, or end what uses it"
        ) from None
    import viser

    from clashsim.view.access import Access, guarding

    logging.getLogger("websockets").setLevel(
        logging.CRITICAL
    )  # whoever knocks and goes away again is no error of ours

    class Server(viser.ViserServer):
        """One that cannot be shared: viser would send the page through a server of its makers'."""

        def request_share_url(self, verbose: bool = True) -> None:
            """Share nothing."""

    access = Access.of(host, str(address[0]))
    with guarding(access) as guarded, contextlib.redirect_stdout(io.StringIO()):  # its own banner
        server = Server(host=host, port=port, verbose=False)
    if not guarded.is_set():
        server.stop()
        raise ParamError(
            f"viser {viser.__version__} opens its server in a way in which requests of other pages "
            "cannot be refused: install viser 1.1"
        )
    if port and server.get_port() != port:  # taken in between; viser goes on to the next
        server.stop()
        raise ParamError(f"port {port} of {host} is in use: choose another with --port")
    return server


def viewer_session(
    folder: Path,
    *,
    trials: Path | None = None,
    policy: Path | None = None,
    route: str | None = None,
) -> ViewerSession:
    """A run folder as the page uses it."""
    from clashsim.fit.run_folder import load, read_notes
    from clashsim.rl.routes import ROUTES, load_route
    from clashsim.sim.mujoco.simulator import MujocoSim
    from clashsim.view.impact_rollout import ImpactRollout
    from clashsim.view.session import ViewerSession

    made, notes = load(folder), read_notes(folder)
    scene = made.scene
    hybrid = made.hybrid(
        timestep=max(_FINE if made.slide is None else _COARSE, float(scene.base.opt.timestep))
    )
    rollers = {
        "identified values": ImpactRollout(
            scene, MujocoSim(scene, made.theta), made.theta, partial(_parted, scene, made.theta)
        ),
        "the author's values": ImpactRollout(
            scene,
            MujocoSim(scene, scene.nominal),
            scene.nominal,
            partial(_parted, scene, scene.nominal),
        ),
        "hybrid": ImpactRollout(
            scene, hybrid, made.theta if hybrid.theta is None else hybrid.theta, hybrid.outcome
        ),
    }
    routes = dict(ROUTES) if route is None else {route: load_route(route)} | dict(ROUTES)
    return ViewerSession(
        folder.resolve().name,
        scene,
        source_of(made, notes, trials),
        rollers,
        made.strikes,
        policy_of(made, folder, policy),
        routes,
    )


def _parted(scene: Scene, theta: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Twists (N, k) after impacts `before` (N, d) in MuJoCo."""
    from clashsim.core.contact_geometry import advance_to_contact
    from clashsim.sim.mujoco.impacts import simulate_impacts

    return simulate_impacts(
        scene,
        advance_to_contact(scene, before)[1],
        np.broadcast_to(theta, (len(before), len(theta))),
    ).after


def source_of(run: CalibratedRun, notes: dict[str, Any], trials: Path | None) -> StrikeSource:
    """What there is to replay: the trials given, else what the run was made from, as far as it is
    at hand, else strikes drawn.
    """
    from clashsim.view.strike_sources import SampledStrikes

    if trials is not None:
        return _file(run.scene, trials)
    options = notes["options"]
    try:
        if "recorded" in options:
            return _laboratory(run.scene, options)
        if isinstance(options.get("impacts"), str):
            return _file(run.scene, Path(options["impacts"]), known=options.get("known") or ())
    except ClashError as error:
        return SampledStrikes(
            run.scene,
            f"The data of this run is not at hand ({error}); these are strikes drawn from the scene's ranges. Recordings can be given with --trials.",
        )
    return SampledStrikes(
        run.scene,
        "This run does not say where its data is; these are strikes drawn from the scene's ranges. Recordings can be given with --trials.",
    )


def _laboratory(scene: Scene, options: dict[str, Any]) -> StrikeSource:
    from clashsim import lab
    from clashsim.view.strike_sources import RecordedTrials

    shape, material, surface = options["recorded"]
    n = int(options["impacts"])
    words = f"Recorded in the laboratory, a stand-in for reality; the first {n} were calibrated with, the others were held out."
    return RecordedTrials(scene, lab.recorded(shape, material, surface), words, n)


def _file(scene: Scene, path: Path, known: Any = ()) -> StrikeSource:
    from clashsim.data.impact_files import read_impacts
    from clashsim.view.strike_sources import MeasuredImpacts, RecordedTrials

    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}")
    if not holds_trials(path):
        impacts = read_impacts(path, known=[*(p.name for p in scene.params), *known]).checked()
        if impacts.planar != (scene.plane is not None):
            raise DataError(f"the impacts of {path.name!r} are not of this scene")
        return MeasuredImpacts(
            impacts,
            f"Impacts of {path.name}: the motion around them was not recorded, so they are shown as the simulators have them, beside the twist measured.",
        )
    found = read_recorded(path)
    bodies = [b.name for b in (scene.struck_body, scene.striker_body) if not b.fixed]
    missing = next((name for name in bodies if name not in found.bodies), None)
    if missing is not None:
        raise DataError(
            f"the trials of {path.name!r} have no body {missing!r}, as the scene calls it"
        )
    kinds = {t.source for t in found}
    return RecordedTrials(
        scene,
        found,
        f"Trials of {path.name}"
        + (", recorded in the laboratory, a stand-in for reality." if kinds == {"lab"} else "."),
    )


def policy_of(run: CalibratedRun, folder: Path, given: Path | None) -> PolicyLookup:
    """Return the policy given, or that in the run's folder, or why there is none."""
    from clashsim.rl.policy import Policy
    from clashsim.view.session import PolicyLookup

    path = folder if given is None else given
    path = path / _POLICY if path.is_dir() else path
    if given is None and not path.is_file():
        return PolicyLookup.missing(
            "No policy was given: clashsim train makes one of this run, "
            "and clashsim view --policy FOLDER opens it here."
        )
    policy = Policy.load(path)
    scene = policy.notes.get("scene")
    ranges = {name: getattr(run.scene.strikes, name, None) for name in policy.names}
    if scene != run.scene.name or any(
        r is None or not np.isfinite(r).all() for r in ranges.values()
    ):
        raise DataError(
            f"the policy {str(path)!r} was trained for scene {scene!r}, but this run is of {run.scene.name!r}"
        )
    return PolicyLookup.available(policy)

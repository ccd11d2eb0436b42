"""`clashsim view`: open a run in the browser."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import arg

from clashsim.commands.option_types import OptionalPath, RunArgument
from clashsim.commands.run_tables import warn_if_unreliable
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.extras import require

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.view.session import PolicyLookup, ViewerSession
    from clashsim.view.strike_sources import StrikeSource

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY_ADDRESS = ("0.0.0.0", "::")
_LAST_PORT = 65535
# Timesteps of the hybrid simulator, s: a slide model is exact at any timestep, MuJoCo's is not.
_COARSE_TIMESTEP = 0.005  # with a slide model
_FINE_TIMESTEP = 0.002  # without one
# Longest time, s, until a signal that ends the viewer is noticed.
_SIGNAL_PERIOD = 0.5
_POLICY_FILE = "policy.safetensors"


@dataclass(frozen=True)
class ViewOptions:
    """Open a run in the browser: replay, plan and try strikes in 3D, watch a policy on a route.

    Example: clashsim view runs/demo

    Works without a screen: the page listens on this machine only, and the command prints how to
    reach it over SSH. Needs clashsim[viser].
    """

    run: RunArgument
    """Run folder of clashsim calibrate or demo."""
    trials: OptionalPath = None
    """Recordings to replay, a file of clashsim import or record; by default those of the
    calibration.
    """
    policy: OptionalPath = None
    """Policy that follows a route: a folder or file of clashsim train."""
    route: Annotated[str | None, arg(metavar="ROUTE")] = None
    """A further route beside 1, 2 and 3: a .csv file of way points with a header x,y in m."""
    host: str = "127.0.0.1"
    """Address to listen on; with any address but the default, other machines can open the page."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""


def run(options: ViewOptions) -> None:
    """Run `clashsim view`."""
    require("viser", "viser", "viser")
    session = viewer_session(
        options.run, trials=options.trials, policy=options.policy, route=options.route
    )
    server = serve(options.host, options.port)
    from clashsim.view.page import Page

    page = Page(server, session)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for line in access_instructions(options.host, server.get_port()):
                print(line, flush=True)
            # A wait without end misses a signal that arrives just before it begins to sleep.
            while not threading.Event().wait(_SIGNAL_PERIOD):
                pass
        print("stopping ...", flush=True)
    finally:
        ended = page.end()
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()
        if not ended:
            # A thread is still stepping: a normal exit could crash in the middle of its step.
            os._exit(1)
    print("stopped")


def access_instructions(host: str, port: int) -> list[str]:
    """Lines that say how to open a page.

    Args:
        host: Address that the page listens on.
        port: Its port.
    """
    is_local = host in _LOOPBACK
    name = "localhost" if is_local or host in _ANY_ADDRESS else host
    if ":" in name:
        name = f"[{name}]"  # an IPv6 address
    first = f"the page is at http://{name}:{port} (stop with Ctrl-C)"
    if not is_local:
        return [first, f"it listens on {host}: whoever reaches this machine can use the page"]
    tunnel = f"ssh -L {port}:localhost:{port} {socket.gethostname()}"
    return [first, f"on a server over SSH, open it from your own machine with: {tunnel}"]


def serve(host: str, port: int) -> Any:
    """A server of viser at exactly this address.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.

    Raises:
        ParamError: The address cannot be used.
    """
    address = _check_address(host, port)
    import viser

    from clashsim.view.access import Access, guarding

    # A browser that connects and leaves again would be logged as an error.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)

    class Server(viser.ViserServer):
        """Without viser's share feature, which sends the page through its makers' server."""

        def request_share_url(self, verbose: bool = True) -> None:
            """Share nothing."""

    access = Access.of(host, address)
    without_banner = contextlib.redirect_stdout(io.StringIO())
    with guarding(access) as guarded, without_banner:
        server = Server(host=host, port=port, verbose=False)
    if not guarded.is_set():
        server.stop()
        raise ParamError(
            f"viser {viser.__version__} opens its server in a way in which requests of other pages "
            "cannot be refused: install viser 1.1"
        )
    # If the port was taken since the check, viser has silently chosen the next free one.
    if port and server.get_port() != port:
        server.stop()
        raise ParamError(f"port {port} of {host} is in use: choose another with --port")
    return server


def _check_address(host: str, port: int) -> str:
    """The address that a host name means; refuses one on which nothing can listen."""
    if not 0 <= port <= _LAST_PORT:
        raise ParamError(f"--port must be 0 to {_LAST_PORT}, got {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ParamError(
            f"the page cannot listen on {host} port {port} ({reason}): "
            "choose another with --port, or end what uses it"
        ) from None
    return str(address[0])


def viewer_session(
    folder: Path,
    *,
    trials: Path | None = None,
    policy: Path | None = None,
    route: str | None = None,
) -> ViewerSession:
    """Load a run folder for the page.

    Args:
        folder: Run folder.
        trials: Recordings to replay; None replays what the run was made from.
        policy: Folder or file of a policy; None uses the one in the run folder, if there is one.
        route: A further route to follow: a .csv file of way points.
    """
    from clashsim.evaluate.conclusion import caution
    from clashsim.fit.run_folder import load, read_notes
    from clashsim.rl.routes import ROUTES, load_route
    from clashsim.view.session import ViewerSession

    calibrated = load(folder)
    notes = read_notes(folder)
    warn_if_unreliable(folder)
    routes = dict(ROUTES)
    if route is not None:
        routes = {route: load_route(route), **ROUTES}
    return ViewerSession(
        folder.resolve().name,
        calibrated.scene,
        strike_source(calibrated, notes, trials),
        _rollouts(calibrated),
        calibrated.strike_table,
        load_policy(calibrated, folder, policy),
        routes,
        caution(notes["metrics"]),
    )


def _rollouts(calibrated: CalibratedRun) -> dict[str, Any]:
    """Simulators of a run by the names that the page shows."""
    from clashsim.sim.mujoco.simulator import MujocoSim
    from clashsim.view.impact_rollout import ImpactRollout

    scene = calibrated.scene
    timestep = _FINE_TIMESTEP if calibrated.slide is None else _COARSE_TIMESTEP
    hybrid = calibrated.hybrid(timestep=max(timestep, float(scene.base.opt.timestep)))
    rollouts = {}
    values = {"identified values": calibrated.theta, "the author's values": scene.nominal}
    for name, theta in values.items():
        after = partial(_twists_in_mujoco, scene, theta)
        rollouts[name] = ImpactRollout(scene, MujocoSim(scene, theta), theta, after)
    hybrid_theta = calibrated.theta if hybrid.theta is None else hybrid.theta
    rollouts["hybrid"] = ImpactRollout(scene, hybrid, hybrid_theta, hybrid.outcome)
    return rollouts


def _twists_in_mujoco(scene: Scene, theta: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Twists (N, k) after impacts `before` (N, d) in MuJoCo with parameters theta (p,)."""
    from clashsim.core.contact_geometry import bring_into_contact
    from clashsim.sim.mujoco.impacts import simulate_impacts

    _, touching = bring_into_contact(scene, before)
    thetas = np.broadcast_to(theta, (len(before), len(theta)))
    return simulate_impacts(scene, touching, thetas).after


def strike_source(
    calibrated: CalibratedRun, notes: dict[str, Any], trials: Path | None
) -> StrikeSource:
    """The strikes that the page can replay.

    Args:
        calibrated: The run.
        notes: What its folder says about it.
        trials: File of recordings, if one was given.

    Returns:
        The trials given; else what the run was made from, if that can be found; else strikes
        sampled from the scene's ranges.
    """
    from clashsim.view.strike_sources import SampledStrikes

    scene = calibrated.scene
    if trials is not None:
        return _source_of_file(scene, trials)
    options = notes["options"]
    reason = "This run does not say where its data is"
    try:
        if "recorded" in options:
            return _source_of_laboratory(scene, options)
        if isinstance(options.get("impacts"), str):
            known = options.get("known") or ()
            return _source_of_file(scene, Path(options["impacts"]), known=known)
    except ClashError as error:
        reason = f"The data of this run is not at hand ({error})"
    return SampledStrikes(
        scene,
        f"{reason}; these are strikes sampled from the scene's ranges. "
        "Recordings can be given with --trials.",
    )


def _source_of_laboratory(scene: Scene, options: dict[str, Any]) -> StrikeSource:
    """Trials that the virtual laboratory recorded."""
    from clashsim import lab
    from clashsim.view.strike_sources import RecordedTrials

    shape, material, surface = options["recorded"]
    num_fitted = int(options["impacts"])
    words = (
        "Recorded in the virtual laboratory, a stand-in for reality; "
        f"the first {num_fitted} were used to calibrate, the others were held out."
    )
    return RecordedTrials(scene, lab.recorded(shape, material, surface), words, num_fitted)


def _source_of_file(scene: Scene, path: Path, known: Sequence[str] = ()) -> StrikeSource:
    """Trials or impacts of a file."""
    from clashsim.core.recorded_joints import with_poses_from_joints
    from clashsim.pipeline.recorded_impacts import read_table
    from clashsim.pipeline.recordings import holds_trials, read_recording
    from clashsim.view.strike_sources import MeasuredImpacts, RecordedTrials

    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}")
    if not holds_trials(path):
        impacts = read_table(path, scene, known, print).impacts
        if impacts.planar != (scene.plane is not None):
            raise DataError(f"the impacts of {path.name!r} are not of this scene")
        return MeasuredImpacts(
            impacts,
            f"Impacts of {path.name}: the motion around them was not recorded, so simulated "
            "impacts are shown beside the measured twist.",
        )
    trials = with_poses_from_joints(read_recording(path), scene)
    for body in (scene.struck_body, scene.striker_body):
        if not body.fixed and body.name not in trials.bodies:
            raise DataError(
                f"the trials of {path.name!r} have no body {body.name!r}, as the scene calls it"
            )
    only_lab = {trial.source for trial in trials} == {"lab"}
    words = f"Trials of {path.name}"
    if only_lab:
        words += ", recorded in the virtual laboratory, a stand-in for reality"
    return RecordedTrials(scene, trials, f"{words}.")


def load_policy(calibrated: CalibratedRun, folder: Path, given: Path | None) -> PolicyLookup:
    """The policy to follow routes with.

    Args:
        calibrated: The run.
        folder: Run folder, which may hold a policy.
        given: Folder or file of a policy, if one was given.

    Returns:
        The policy, or the reason why there is none.

    Raises:
        DataError: The policy is of another scene.
    """
    from clashsim.rl.policy import Policy
    from clashsim.view.session import PolicyLookup

    path = folder if given is None else given
    if path.is_dir():
        path = path / _POLICY_FILE
    if given is None and not path.is_file():
        return PolicyLookup.missing(
            "No policy was given: clashsim train makes one of this run, "
            "and clashsim view --policy FOLDER opens it here."
        )
    policy = Policy.load(path)
    trained_for = policy.notes.get("scene")
    ranges = [getattr(calibrated.scene.strikes, name, None) for name in policy.names]
    has_ranges = all(bounds is not None and np.isfinite(bounds).all() for bounds in ranges)
    if trained_for != calibrated.scene.name or not has_ranges:
        raise DataError(
            f"the policy {str(path)!r} was trained for scene {trained_for!r}, "
            f"but this run is of {calibrated.scene.name!r}"
        )
    return PolicyLookup.available(policy)

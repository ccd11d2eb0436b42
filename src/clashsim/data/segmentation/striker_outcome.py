"""The twist of a free striker after an impact, from its own frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clashsim.data.segmentation.pair_setup import PairSetup
from clashsim.data.segmentation.recorded_pair import RecordedPair
from clashsim.data.segmentation.result import origin_state
from clashsim.data.segmentation.side_fits import GUARDS_AFTER, FitWindow, SideFits, fit_sides
from clashsim.data.segmentation.velocity_jumps import find_velocity_jumps

_MAX_MISFIT = 4.0  # rms residual over noise above which frames do not follow one motion
_SAME_IMPACT = 0.03  # s from the impact within which a jump of the striker's velocity is of it


def striker_twist_after(pair: RecordedPair, setup: PairSetup, time: float) -> np.ndarray | None:
    """The striker's twist (k,) after an impact, m/s and rad/s, as that of the struck body.

    Args:
        pair: The recorded bodies.
        setup: What is the same for all trials.
        time: Of the impact, s.

    Returns:
        The twist; None where the striker is driven, or its frames do not show it.
    """
    if pair.striker is None or pair.striker_noise is None:
        return None
    if setup.striker_gyration_radius is None:
        return None
    own = replace(setup, frame=setup.striker_frame, gyration_radius=setup.striker_gyration_radius)
    start, end = _undisturbed(pair, own, time)
    for guard in GUARDS_AFTER:
        window = FitWindow(near=time, start=start, end=end, guard=guard)
        fits = fit_sides(pair.striker, pair.striker_noise, own, window=window).fits
        if fits is None:
            return None
        if fits.after.misfit < _MAX_MISFIT:
            return _twist_at(pair, fits, reference=time, time=time + setup.lag)
    return None


def _undisturbed(pair: RecordedPair, own: PairSetup, time: float) -> tuple[float, float]:
    """Times (s) before and after the impact between which nothing else hits the striker."""
    assert pair.striker is not None and pair.striker_noise is not None
    jumps = find_velocity_jumps(
        pair.striker.t,
        pair.striker.detection_coordinates(),
        pair.striker_noise[:, :3],
        length_scale=own.length_scale[:3],
        min_jump=own.min_jump,
    )
    earlier = [jump.high for jump in jumps if jump.time < time - _SAME_IMPACT]
    later = [jump.low for jump in jumps if jump.time > time + _SAME_IMPACT]
    return max(earlier, default=-np.inf), min(later, default=np.inf)


def _twist_at(pair: RecordedPair, fits: SideFits, *, reference: float, time: float) -> np.ndarray:
    """Twist (k,) of the striker's origin at a time (s) after the impact."""
    assert pair.striker is not None
    _, twist = origin_state(pair.striker, fits.after, reference, time)
    return twist

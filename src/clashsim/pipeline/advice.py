"""Whether more recorded strikes would help, as a sentence for reports and the terminal."""

from __future__ import annotations

from clashsim.core.errors import ClashError
from clashsim.fit.advise import Advice, advise
from clashsim.fit.calibrate import Calibration
from clashsim.fit.candidates import candidates

_CANDIDATES = 256  # strikes to choose from; fewer than for advice proper, since one is enough here


def advice_sentence(advice: Advice) -> str:
    """A sentence on whether ten more strikes would help.

    What a calibration states about its own errors is cautious: errors that are measured may well be
    smaller.
    """
    now = f"{100 * advice.error[0]:.1f} %"
    after_ten = f"{100 * advice.after_ten:.1f} %"
    floor = f"{100 * advice.floor:.1f} %"
    outcome = "help" if advice.worthwhile else "not help"
    return (
        f"ten more strikes would {outcome}: by its own cautious account the expected error is "
        f"{now} now, {after_ten} after ten, and {floor} at best"
    )


def advice_for_report(calibration: Calibration, seed: int) -> str | None:
    """The same sentence for a calibration; None where strikes are not made by an arm in a plane."""
    try:
        choice = candidates(
            calibration.base.scene, seed, _CANDIDATES, known=calibration.scaling.median_extras()
        )
        return advice_sentence(advise(calibration, choice.impacts, 1))
    except ClashError:
        return None

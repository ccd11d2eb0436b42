"""Whether more recorded strikes would help, as a sentence for reports and the terminal."""

from __future__ import annotations

from clashsim.core.errors import ClashError
from clashsim.fit.advise import Advice, advise
from clashsim.fit.calibrate import Calibration
from clashsim.fit.candidates import candidates

_CANDIDATES = 128  # fewer than in `clashsim advise`: here no strikes are proposed


def advice_sentence(advice: Advice) -> str:
    """A sentence on whether ten more strikes would help.

    The error is the calibration's own predicted standard deviation; measured errors may be smaller.
    """
    now = f"{100 * advice.error[0]:.1f} %"
    after_ten = f"{100 * advice.after_ten:.1f} %"
    floor = f"{100 * advice.floor:.1f} %"
    outcome = "help" if advice.worthwhile else "not help"
    return (
        f"ten more strikes would {outcome}: the model expects an error of {now} now, "
        f"{after_ten} after ten more, and {floor} at best"
    )


def advice_for_report(calibration: Calibration, seed: int) -> str | None:
    """`advice_sentence` for a calibration; None if its scene has no candidate strikes."""
    try:
        choice = candidates(
            calibration.base.scene,
            seed,
            _CANDIDATES,
            known=calibration.scaling.median_extras(),
            recorded=calibration.recorded,
        )
        return advice_sentence(advise(calibration, choice.impacts, 1))
    except ClashError:
        return None

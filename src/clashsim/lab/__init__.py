"""The virtual laboratory: a stand-in for reality in Drake.

Methods under test have access only to strikes and recorded trials.
"""

from clashsim.lab.recording import plan, record, record_all, recorded, recorded_strikes
from clashsim.lab.session import REACH, Session, execute, execute_independently
from clashsim.lab.settings import CHANGES, MATERIALS, SHAPES, SURFACES, Setting, settings
from clashsim.lab.strike import Strike

__all__ = [
    "CHANGES",
    "MATERIALS",
    "REACH",
    "SHAPES",
    "SURFACES",
    "Session",
    "Setting",
    "Strike",
    "execute",
    "execute_independently",
    "plan",
    "record",
    "record_all",
    "recorded",
    "recorded_strikes",
    "settings",
]

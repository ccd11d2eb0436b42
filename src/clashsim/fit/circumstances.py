"""Where and how two bodies meet: the columns that fields and residual depend on."""

from __future__ import annotations

import numpy as np

from clashsim.core.contact_frame import ContactFrame


def circumstances(frame: ContactFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where and how the bodies meet, in three groups of columns.

    Returns:
        Where along the striker's surface the struck body lies, its contact normal and orientation,
        and the velocities at the approach, with N rows each.
    """
    normals = ("struck_nx", "struck_ny", "struck_nz")
    normal = [i for i, name in enumerate(frame.names) if name in normals]
    on_struck = np.column_stack([frame.features[:, normal], frame.relative_orientation])
    # The features from here on are velocities, and the logarithm of the approach speed.
    rates = frame.features[:, frame.names.index("struck_vn") :]
    return frame.tangential_offset, on_struck, rates

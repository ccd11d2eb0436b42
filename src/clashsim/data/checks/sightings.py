"""Checks of a body that a camera saw by its tags: reprojection, blur, two poses that look alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clashsim.data.checks.findings import Finding, finding
from clashsim.data.readers.streams import Stream

_MAX_USUAL_ERROR = 1.0  # px: a calibrated camera has a tenth of that
_MIN_OUTLIER_ERROR = 1.0  # px
_OUTLIER_FACTOR = 8.0  # times the usual reprojection error
_MIN_BLUR = 4.0  # px of an edge; a sharp frame has 1 to 2
_BLUR_FACTOR = 2.0  # times the usual width of an edge
_MIN_MARGIN = 9.0  # between the two paths of poses: three standard deviations
_MIN_SEPARATION = 0.1  # rad: poses that differ by less are noise of one
_MOVED_SHARE = 0.02  # of the frames


def check_sightings(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Set frames in which the pose does not fit the tags to NaN, and report how well they fit.

    Args:
        trial: Name of the trial, for the findings.
        stream: One body in one log, with all of its rows.

    Returns:
        The changed stream, and what was found.
    """
    sightings = stream.sightings
    if sightings is None or not np.isfinite(sightings.error).any():
        return stream, []
    findings: list[Finding] = []
    error = sightings.error
    usual = float(np.nanmedian(error))
    if usual > _MAX_USUAL_ERROR:
        message = (
            f"poses miss the corners of their tags by {usual:.2g} px; check the calibration of the"
            " camera, and the sizes and places of the tags"
        )
        findings.append(finding("reprojection", "stop", message, trial=trial, body=stream.body))
    with np.errstate(invalid="ignore"):
        misfits = np.flatnonzero(error > max(_MIN_OUTLIER_ERROR, _OUTLIER_FACTOR * usual))
    if misfits.size:
        message = (
            f"in {misfits.size} frames the pose misses the corners of its tags by up to"
            f" {np.nanmax(error):.2g} px ({usual:.2g} px is usual); they count as not seen"
        )
        findings.append(
            finding("reprojection", "warn", message, trial=trial, body=stream.body, rows=misfits)
        )
        pose = stream.pose.copy()
        pose[misfits] = np.nan
        stream = replace(stream, pose=pose)
    findings += _check_blur(trial, stream.body, sightings.edge_width)
    flipped = np.flatnonzero(sightings.flipped)
    if flipped.size:
        message = (
            f"in {flipped.size} of {np.isfinite(error).sum()} frames a tag looked more like its"
            " mirrored pose; the motion around them decided"
        )
        findings.append(
            finding("flipped_tag", "warn", message, trial=trial, body=stream.body, rows=flipped)
        )
    if sightings.margin < _MIN_MARGIN and sightings.separation > _MIN_SEPARATION:
        message = (
            f"two motions whose rotations are {np.degrees(sightings.separation):.0f} degrees apart"
            " fit the frames alike: the tag is too small, or seen from too far; put a second tag on"
            " another side of the body, or turn the camera"
        )
        findings.append(finding("ambiguous_tag", "stop", message, trial=trial, body=stream.body))
    if sightings.camera_moved > _MOVED_SHARE * len(error):
        message = (
            f"in {sightings.camera_moved} frames the tags that are fixed in the world are elsewhere"
        )
        findings.append(finding("camera_moved", "stop", message, trial=trial, body=stream.body))
    return stream, findings


def _check_blur(trial: str, body: str, edge_width: np.ndarray) -> list[Finding]:
    """Look for frames in which the edges of the tags are wide."""
    usual = float(np.nanmedian(edge_width))
    with np.errstate(invalid="ignore"):
        blurred = np.flatnonzero(edge_width > max(_MIN_BLUR, _BLUR_FACTOR * usual))
    if not blurred.size:
        if usual <= _MIN_BLUR:
            return []
        message = f"edges of the tags are {usual:.1f} px wide: focus the camera"
        return [finding("blur", "warn", message, trial=trial, body=body)]
    widest = float(np.nanmax(edge_width))
    message = (
        f"{blurred.size} frames are blurred: edges of the tags are up to {widest:.1f} px wide"
        f" ({usual:.1f} px is usual); expose shorter"
    )
    return [finding("blur", "warn", message, trial=trial, body=body, rows=blurred)]

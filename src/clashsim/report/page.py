"""The report of a calibration: one HTML page that can be read without a network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from clashsim.core.files import write_atomic
from clashsim.report.accuracy_sections import (
    accuracy_section,
    agreement_section,
    conditions_section,
    coverage_section,
)
from clashsim.report.comparison import Comparison
from clashsim.report.content import ReportContent
from clashsim.report.data_efficiency import data_efficiency_section
from clashsim.report.freed_parameters import freed_section
from clashsim.report.markup import Markup, tag
from clashsim.report.outliers import outliers_section
from clashsim.report.parameters import parameters_section, restitution_section, slide_section
from clashsim.report.provenance import SOURCES, data_section, timing_section
from clashsim.report.recorded_forces import forces_section
from clashsim.report.rest_poses import rest_section
from clashsim.report.trust_maps import trust_section
from clashsim.report.units import keep_units


def report(content: ReportContent) -> str:
    """The HTML page as text; the same content always gives the same text."""
    compared = content.comparison()
    sections: list[Markup | None] = [_head(content, compared)]
    if len(compared.measured):
        sections += _held_out_sections(content, compared)
    sections.append(outliers_section(content.outliers, content.num_fitted))
    if content.trust_map is not None:
        sections.append(trust_section(content.trust_map))
    sections.append(data_efficiency_section(content, compared))
    sections.append(parameters_section(content.params, content.estimates))
    sections.append(freed_section(content.candidates))
    sections.append(restitution_section(content.restitution))
    sections.append(slide_section(content.slide_estimates, content.slide_units))
    sections.append(data_section(content))
    sections.append(timing_section(content))
    return fill_template(content.title, sections)


def write_report(path: Path | str, content: ReportContent) -> None:
    """Write the HTML page to a file, completely or not at all.

    Args:
        path: Where the page is written.
        content: What the page shows.
    """
    write_atomic(Path(path), report(content).encode())


def _head(content: ReportContent, compared: Comparison) -> Markup:
    """Title, the main result in words, and where the data comes from."""
    badge, source_sentence = SOURCES.get(content.source, (content.source, "{data}"))
    badge_class = "badge warning" if content.source in ("lab", "simulated") else "badge"
    paragraphs = [
        tag("p", "clashsim report", tag("span", badge, class_=badge_class), class_="over"),
        tag("h1", content.title),
        tag("p", keep_units(compared.headline()), class_="headline"),
        tag("p", keep_units(compared.meaning()), class_="lead"),
    ]
    if content.rest_displacements is not None:
        rest_sentence = content.rest_displacements.sentence(compared.ours, compared.baseline)
        paragraphs.append(tag("p", keep_units(rest_sentence), class_="lead"))
    source = source_sentence.format(data=content.data)
    paragraphs.append(tag("p", "Data: ", source, ".", class_="quiet"))
    return tag("header", paragraphs)


def _held_out_sections(content: ReportContent, compared: Comparison) -> list[Markup | None]:
    """Sections on the predictions of held-out impacts; None where content is missing."""
    labels = content.impact_labels()
    sections: list[Markup | None] = [accuracy_section(compared, content.test_description)]
    of_striker = content.striker_comparison()
    if of_striker is not None:
        sections.append(
            accuracy_section(
                of_striker,
                f"on {len(of_striker.measured)} impacts in which it was recorded",
                title="Accuracy of the striker's outcome",
            )
        )
    if content.rest_displacements is not None:
        sections.append(rest_section(content.rest_displacements, compared, labels))
    sections.append(forces_section(content.forces, content.ours, labels))
    sections.append(agreement_section(compared, labels))
    by_condition = None
    if content.conditions:
        by_condition = conditions_section(compared, labels, content.conditions)
    coverage = None
    if content.half_widths is not None:
        coverage = coverage_section(compared, np.asarray(content.half_widths, float))
    if by_condition and coverage and len(content.conditions) == 1:
        # One chart of errors leaves room for the table of coverage beside it.
        sections.append(tag("div", by_condition, coverage, class_="beside"))
    else:
        sections += [by_condition, coverage]
    return sections


def fill_template(title: str, sections: Sequence[Markup | None]) -> str:
    """A page of this project: the template with a title and sections.

    Args:
        title: Title of the page.
        sections: What it shows, in order; None is left out.

    Returns:
        The HTML text.
    """
    template = (resources.files("clashsim.report") / "page.html").read_text("utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)
    assert script is not None
    # The page's security policy allows only the script with this hash. If a name in the data ever
    # brought markup into the page, a browser would still not run it.
    script_hash = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    return Template(template).substitute(
        title=tag("title", f"{title}: clashsim report"),
        allowed=script_hash,
        body="\n".join(part for part in sections if part),
    )

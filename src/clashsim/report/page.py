"""The report of a calibration: one HTML page that can be read without a network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Concatenate, ParamSpec

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.impacts import after_columns
from clashsim.core.params import Param
from clashsim.evaluate.data_efficiency import DataEfficiency
from clashsim.evaluate.metrics import ALPHAS, accuracy
from clashsim.evaluate.rest_poses import RestDisplacements
from clashsim.evaluate.trust_map import TrustMap
from clashsim.report import charts
from clashsim.report.comparison import EXPECTED, Comparison, coverage_sentence
from clashsim.report.data_efficiency import chart, sentence
from clashsim.report.markup import Markup, card, tag
from clashsim.report.parameters import parameters
from clashsim.report.parameters import restitution as restitution_card
from clashsim.report.parameters import slide as slide_card
from clashsim.report.provenance import SOURCES, data_card, made_card
from clashsim.report.rest_poses import panels as rest_panels
from clashsim.report.rest_poses import table as rest_table
from clashsim.report.tables import Estimated
from clashsim.report.trust_maps import key, maps

_Arguments = ParamSpec("_Arguments")
_UNITS = {"v": "m/s", "w": "rad/s"}
_CURVE = np.linspace(0.0, 0.5, 101)


def report(
    *,
    title: str,
    data: str,
    measured: np.ndarray,
    predicted: Mapping[str, np.ndarray],
    gyration: float,
    fitted: int,
    source: str = "real",
    ours: str = "clashsim",
    baseline: str | None = None,
    spread: np.ndarray | None = None,
    judged: str | None = None,
    labels: Sequence[str] | None = None,
    circumstances: Mapping[str, np.ndarray] | None = None,
    params: Sequence[Param] = (),
    estimates: Sequence[Estimated] = (),
    slide: tuple[Sequence[Estimated], Mapping[str, str]] = ((), {}),
    restitution: Mapping[str, Sequence[float]] | None = None,
    rests: RestDisplacements | None = None,
    space: TrustMap | None = None,
    fewer: DataEfficiency | None = None,
    advice: str | None = None,
    trials: Sequence[Mapping[str, str]] = (),
    findings: Sequence[str] = (),
    notes: Sequence[str] = (),
    seconds: Mapping[str, float] | None = None,
    rate: float | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """The page as text; the same arguments give the same text.

    data: name of the recordings; source: "real", "lab" or "simulated", as trials have it, which
    decides how the page speaks of them.
    measured (N, k): twists after impact that were held out, m/s and rad/s; predicted: (N, k) by
    each method, not finite where it gave none;
    ours: the method that is reported on, rival: the one it is compared with (default: the best of
    the others). gyration: m, weighs the spin.
    spread (N, k): one standard deviation, as ours states it. judged: how impacts were held out, as
    `bench.judge` says it. labels: what to call each held-out impact (default: its number).
    circumstances: values (N,) to draw errors over, by a name with its unit. estimates: one for each
    of params.
    slide: values of the slide model, and their units by name.
    restitution: "speeds" (m/s), "nominal" and "identified" of the same length. rests: where bodies
    came to rest; space: how sure ours is over all strikes; fewer: how it does with fewer impacts,
    and advice: whether more would help. trials, findings, notes: as `recorded.data_card` has them.
    seconds: how long each step took; rate: impacts predicted a second.
    """
    if len(params) != len(estimates):
        raise DataError(
            f"a report needs one estimate for each parameter, got {len(estimates)} for {len(params)}"
        )
    found = Comparison.of(measured, predicted, gyration=gyration, ours=ours, baseline=baseline)
    n, k = found.measured.shape
    names = (
        [str(label) for label in labels]
        if labels is not None
        else [f"impact {i}" for i in range(n)]
    )
    drawn_over = {name: np.asarray(values, float) for name, values in (circumstances or {}).items()}
    for what, shape in {
        "labels": (len(names),),
        **{name: x.shape for name, x in drawn_over.items()},
    }.items():
        if shape != (n,):
            raise DataError(
                f"a report of {n} impacts needs one value for each in {what!r}, got shape {shape}"
            )
    if spread is not None and np.shape(spread) != (n, k):
        raise DataError(f"a report needs a spread of shape {(n, k)}, got {np.shape(spread)}")
    body: list[Markup | None] = [_head(title, data, source, found, rests)]
    if n:
        body += [
            _methods(found, judged),
            _rests(found, rests, names) if rests is not None else None,
            _agreement(found, names),
        ]
        errs = _circumstances(found, names, drawn_over) if drawn_over else None
        honest = _spread(found, np.asarray(spread, float)) if spread is not None else None
        beside = errs and honest and len(drawn_over) == 1
        body += [tag("div", errs, honest, class_="beside")] if beside else [errs, honest]
    body += [_trust(space) if space is not None else None, _more(found, fitted, fewer, advice)]
    body += [parameters(params, estimates), restitution_card(restitution), slide_card(*slide)]
    body += [
        data_card(data, source, fitted, n, trials=trials, findings=findings, notes=notes),
        made_card(seconds or {}, rate, versions or {}),
    ]
    return _filled(title, body)


def _written(
    make: Callable[_Arguments, str],
) -> Callable[Concatenate[Path | str, _Arguments], None]:
    """A function that writes what `make` gives to a file, with the same arguments after the path."""

    def write(path: Path | str, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        write_atomic(Path(path), make(*args, **kwargs).encode())

    return write


write_report = _written(report)


def _filled(title: str, body: Sequence[Markup | None]) -> str:
    template = (resources.files("clashsim.report") / "page.html").read_text("utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)
    assert script is not None
    # The page's one script is allowed by its hash: should markup ever slip in with a name, a
    # browser still runs nothing of it.
    allowed = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    return Template(template).substitute(
        title=Markup(tag("title", f"{title}: clashsim report")),
        allowed=allowed,
        body="\n".join(b for b in body if b),
    )


def _head(
    title: str, data: str, source: str, found: Comparison, rests: RestDisplacements | None
) -> Markup:
    badge, sentence = SOURCES.get(source, (source, "{data}"))
    return tag(
        "header",
        tag(
            "p",
            "clashsim report",
            tag(
                "span", badge, class_="badge" + (" doubt" if source in ("lab", "simulated") else "")
            ),
            class_="over",
        ),
        tag("h1", title),
        tag("p", _tight(found.headline()), class_="headline"),
        tag("p", _tight(found.meaning()), class_="lead"),
        tag("p", _tight(rests.sentence(found.ours, found.baseline)), class_="lead")
        if rests is not None
        else None,
        tag("p", "Data: ", sentence.format(data=data), ".", class_="quiet"),
    )


def _methods(found: Comparison, judged: str | None) -> Markup:
    head = tag(
        "tr",
        tag("th", "method", scope="col"),
        [
            tag(
                "th",
                f"within {100 * a:g} %",
                tag("small", f"accuracy({a:g})"),
                scope="col",
                class_="num",
            )
            for a in ALPHAS
        ],
        tag("th", "median error", tag("small", "relative"), scope="col", class_="num"),
    )
    rows = []
    for i, (name, error) in enumerate(found.errors.items()):
        cells = []
        for alpha in ALPHAS:
            share = accuracy(error, alpha)
            low, high = found.interval(share)
            cells.append(
                tag(
                    "td",
                    f"{100 * share:.0f} %",
                    tag("small", f"{100 * low:.0f} to {100 * high:.0f}"),
                    _meter(share, i),
                    class_="num",
                )
            )
        median = float(np.median(error))
        cells.append(
            tag("td", f"{100 * median:.1f} %" if np.isfinite(median) else "none", class_="num")
        )
        rows.append(
            tag(
                "tr",
                tag(
                    "th", tag("span", charts.key(i), tag("span", name), class_="name"), scope="row"
                ),
                cells,
                class_="ours" if name == found.ours else None,
            )
        )
    shares = {name: np.array([accuracy(e, a) for a in _CURVE]) for name, e in found.errors.items()}
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="methods")
    why = "Error: |predicted - measured| over |measured|, of the twist with its spin times the radius of gyration. Small figures: what chance leaves open, 90 %."
    left = tag(
        "div",
        table,
        tag(
            "p",
            f"Judged {judged or f'on {len(found.measured)} impacts held out'}. ",
            why,
            " ",
            found.missing(),
            class_="quiet",
        ),
    )
    return card(
        "How good it is",
        tag(
            "div",
            left,
            tag("div", charts.curves(_CURVE, shares, marked=ALPHAS), class_="plot drawing"),
            class_="pair",
        ),
    )


def _meter(share: float, i: int) -> Markup:
    """A thin bar of a share."""
    return tag(
        "svg",
        tag("rect", class_="track", width="100%", height=4, rx=2),
        tag("rect", class_=f"fill {charts.series(i)}", width=f"{100 * share:.1f}%", height=4, rx=2),
        class_="meter",
        height=4,
        aria_hidden="true",
    )


def _legend(found: Comparison) -> Markup:
    return tag(
        "div",
        [
            tag(
                "button",
                charts.key(i),
                tag("span", name),
                type="button",
                data_s=charts.series(i),
                aria_pressed="true",
            )
            for i, name in enumerate(found.errors)
        ],
        class_="legend",
    )


def _agreement(found: Comparison, labels: Sequence[str]) -> Markup:
    names = [c.removesuffix("_after") for c in after_columns(found.measured.shape[1] == 3)]
    panels = [
        charts.against(
            found.measured[:, j],
            {m: p[:, j] for m, p in found.predicted.items()},
            labels,
            name=name,
            unit=_UNITS[name[0]],
        )
        for j, name in enumerate(names)
    ]
    shown = len(charts.thinned(len(labels)))
    hint = "On the line prediction and measurement agree; hollow marks lie beyond the chart." + (
        f" {shown} of {len(labels)} impacts are drawn." if shown < len(labels) else ""
    )
    return card(
        "Predicted against measured",
        _legend(found),
        tag("div", panels, class_="panels plot"),
        tag("p", hint, class_="quiet"),
    )


def _circumstances(
    found: Comparison, labels: Sequence[str], circumstances: Mapping[str, np.ndarray]
) -> Markup:
    panels = [charts.over(x, found.errors, labels, name=name) for name, x in circumstances.items()]
    hint = "Lines: the median of each fifth of the impacts, from low to high."
    return card(
        "Where it errs",
        _legend(found),
        tag("div", panels, class_="panels wide plot"),
        tag("p", hint, class_="quiet"),
    )


def _rests(found: Comparison, rests: RestDisplacements, labels: Sequence[str]) -> Markup:
    order = list(found.predicted)
    hint = "From the pose at impact to rest: the twist after impact that each method tells, and then the same slide model for all of them."
    drawn = tag("div", rest_panels(rests, order, labels), class_="panels plot")
    return card(
        "Where it comes to rest",
        _legend(found),
        drawn,
        rest_table(rests, order),
        tag("p", hint, class_="quiet"),
    )


def _trust(space: TrustMap) -> Markup:
    hint = "Each cell: the median over the strikes in it, whatever else differs between them. Blank: no such strike is within the scene's [strikes], so nothing was trained there."
    return card(
        "Where it is trusted",
        tag("p", _tight(space.sentence())),
        key(),
        tag("div", maps(space), class_="panels wide plot maps"),
        tag("p", hint, class_="quiet"),
    )


def _more(
    found: Comparison, fitted: int, fewer: DataEfficiency | None, advice: str | None
) -> Markup | None:
    """Whether more impacts would help: what fewer gave, and what is expected of ten more."""
    if fewer is None and advice is None:
        return None
    said = [advice[0].upper() + advice[1:] + "."] if advice else []
    if fewer is None or not len(found.measured):
        return card("Would more impacts help?", tag("p", _tight(" ".join(said))))
    whole, floor = (
        (fitted, found.errors[found.ours]),
        next(((name, e) for name, e in found.errors.items() if name.endswith("nominal")), None),
    )
    hint = "Calibrated again on fewer of the same impacts, a few draws each; whiskers: least and greatest of the draws."
    left = tag(
        "div",
        tag("p", _tight(" ".join([sentence(fewer, whole), *said]))),
        tag("p", hint, class_="quiet"),
    )
    return card(
        "Would more impacts help?",
        tag(
            "div",
            left,
            tag("div", chart(fewer, whole, floor), class_="plot drawing"),
            class_="pair",
        ),
    )


def _spread(found: Comparison, spread: np.ndarray) -> Markup:
    names = [c.removesuffix("_after") for c in after_columns(found.measured.shape[1] == 3)]
    shares = found.within(spread)  # (2, k)
    head = tag(
        "tr",
        tag("th", "outcome", scope="col"),
        [
            tag("th", f"within {s} sd", tag("small", f"{e} % expected"), scope="col")
            for s, e in ((1, "68"), (2, "95"))
        ],
    )
    rows = []
    for name, pair in [("all", shares.mean(1)), *zip(names, shares.T, strict=True)]:
        cells = [
            tag(
                "td",
                tag("span", f"{100 * share:.0f} %", class_="figure"),
                _gauge(float(share), float(e)),
                class_="gauged",
            )
            for share, e in zip(pair, EXPECTED, strict=True)
        ]
        rows.append(
            tag("tr", tag("th", name, scope="row"), cells, class_="ours" if name == "all" else None)
        )
    said = f"{coverage_sentence(shares.mean(1), len(found.measured))} Tick: the share that a spread stated honestly would hold."
    return card(
        "Is its stated spread honest?",
        tag("table", tag("thead", head), tag("tbody", rows), class_="spread"),
        tag("p", said, class_="quiet"),
    )


def _gauge(share: float, expected: float) -> Markup:
    at = f"{100 * expected:.1f}%"
    return tag(
        "svg",
        tag("rect", class_="track", y=5, width="100%", height=8, rx=2),
        tag("rect", class_="fill s0", y=5, width=f"{100 * share:.1f}%", height=8, rx=2),
        tag("line", class_="nominal", x1=at, x2=at, y1=1, y2=17),
        class_="gauge",
        height=18,
        aria_hidden="true",
    )


def _tight(text: str) -> str:
    """Text whose numbers keep to their units where lines break."""
    return re.sub(r"(?<=\d) (?=(%|m/s|mm|s)\b|%)", "\u00a0", text)

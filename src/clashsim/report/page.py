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
from clashsim.core.params import Param, to_unit
from clashsim.report import charts
from clashsim.report.comparison import EXPECTED, Comparison, spread_verdict
from clashsim.report.markup import Markup, tag
from clashsim.report.metrics import ALPHAS, accuracy
from clashsim.report.tables import Estimated, number

_Arguments = ParamSpec("_Arguments")
_UNITS = {"v": "m/s", "w": "rad/s"}
_CURVE = np.linspace(0.0, 0.5, 101)
_NOTES = 12  # notes shown at once; the rest unfold
_SOURCES = {
    "real": ("recorded", "impacts recorded in {data}"),
    "lab": ("stand-in for reality", "the virtual laboratory, a stand-in for reality: {data}"),
    "simulated": ("stand-in for reality", "another simulation, a stand-in for reality: {data}"),
}
_VERDICTS = {
    "fitted": "the impacts decide the value",
    "at bound": "the best value lies at an end of the range: widen the range, or suspect an effect that the scene lacks",
    "unidentifiable": "these impacts say little about it; the value is what was expected beforehand",
    "known": "measured with each impact; the bar spans the values measured",
}


def report(*, title: str, data: str, measured: np.ndarray, predicted: Mapping[str, np.ndarray], gyration: float, fitted: int,
           source: str = "real", ours: str = "clashsim", rival: str | None = None, spread: np.ndarray | None = None, judged: str | None = None,
           labels: Sequence[str] | None = None, circumstances: Mapping[str, np.ndarray] | None = None,
           params: Sequence[Param] = (), estimates: Sequence[Estimated] = (), restitution: Mapping[str, Sequence[float]] | None = None,
           notes: Sequence[str] = (), seconds: Mapping[str, float] | None = None, versions: Mapping[str, str] | None = None) -> str:
    """The page as text; the same arguments give the same text.

    data: name of the recordings; source: "real", "lab" or "simulated", as trials have it, which decides how the page speaks of them.
    measured (N, k): twists after impact that were held out, m/s and rad/s; predicted: (N, k) by each method, not finite where it gave none;
    ours: the method that is reported on, rival: the one it is compared with (default: the best of the others). gyration: m, weighs the spin.
    spread (N, k): one standard deviation, as ours states it. judged: how impacts were held out, as `bench.judge` says it. labels: what to call each
    held-out impact (default: its number). circumstances: values (N,) to draw errors over, by a name with its unit. estimates: one for each of params.
    restitution: "speeds" (m/s), "nominal" and "identified" of the same length. seconds: how long each step took.
    """
    if len(params) != len(estimates):
        raise DataError(f"a report needs one estimate for each parameter, got {len(estimates)} for {len(params)}")
    found = Comparison.of(measured, predicted, gyration=gyration, ours=ours, rival=rival)
    n, k = found.measured.shape
    names = [str(label) for label in labels] if labels is not None else [f"impact {i}" for i in range(n)]
    drawn_over = {name: np.asarray(values, float) for name, values in (circumstances or {}).items()}
    for what, shape in {"labels": (len(names),), **{name: x.shape for name, x in drawn_over.items()}}.items():
        if shape != (n,):
            raise DataError(f"a report of {n} impacts needs one value for each in {what!r}, got shape {shape}")
    if spread is not None and np.shape(spread) != (n, k):
        raise DataError(f"a report needs a spread of shape {(n, k)}, got {np.shape(spread)}")
    body: list[Markup | None] = [_head(title, data, source, found)]
    if n:
        body += [_methods(found, judged), _agreement(found, names)]
        errs = _circumstances(found, names, drawn_over) if drawn_over else None
        honest = _spread(found, np.asarray(spread, float)) if spread is not None else None
        beside = errs and honest and len(drawn_over) == 1
        body += [tag("div", errs, honest, class_="beside")] if beside else [errs, honest]
    body += [_parameters(params, estimates), _restitution(restitution)]
    body.append(_origin(data, source, fitted, n, notes=notes, seconds=seconds or {}, versions=versions or {}))
    return _filled(title, body)


def _written(make: Callable[_Arguments, str]) -> Callable[Concatenate[Path | str, _Arguments], None]:
    """A function that writes what `make` gives to a file, with the same arguments after the path."""

    def write(path: Path | str, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        write_atomic(Path(path), make(*args, **kwargs).encode())

    return write


write_report = _written(report)


def _filled(title: str, body: Sequence[Markup | None]) -> str:
    template = (resources.files("clashsim.report") / "page.html").read_text("utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)
    assert script is not None
    # The page's one script is allowed by its hash: should markup ever slip in with a name, a browser still runs nothing of it.
    allowed = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    return Template(template).substitute(title=Markup(tag("title", f"{title}: clashsim report")), allowed=allowed, body="\n".join(b for b in body if b))


def _head(title: str, data: str, source: str, found: Comparison) -> Markup:
    badge, sentence = _SOURCES.get(source, (source, "{data}"))
    return tag("header", tag("p", "clashsim report", tag("span", badge, class_="badge" + (" doubt" if source in ("lab", "simulated") else "")), class_="over"),
               tag("h1", title), tag("p", _tight(found.headline()), class_="headline"), tag("p", _tight(found.meaning()), class_="lead"),
               tag("p", "Data: ", sentence.format(data=data), ".", class_="quiet"))


def _card(heading: str, *children: object, class_: str = "") -> Markup:
    return tag("section", tag("h2", heading), children, class_=f"card {class_}".strip())  # type: ignore[arg-type]


def _methods(found: Comparison, judged: str | None) -> Markup:
    head = tag("tr", tag("th", "method", scope="col"), [tag("th", f"within {100 * a:g} %", tag("small", f"accuracy({a:g})"), scope="col", class_="num") for a in ALPHAS],
               tag("th", "median error", tag("small", "relative"), scope="col", class_="num"))
    rows = []
    for i, (name, error) in enumerate(found.errors.items()):
        cells = []
        for alpha in ALPHAS:
            share = accuracy(error, alpha)
            low, high = found.interval(share)
            cells.append(tag("td", f"{100 * share:.0f} %", tag("small", f"{100 * low:.0f} to {100 * high:.0f}"), _meter(share, i), class_="num"))
        median = float(np.median(error))
        cells.append(tag("td", f"{100 * median:.1f} %" if np.isfinite(median) else "none", class_="num"))
        rows.append(tag("tr", tag("th", tag("span", charts.key(i), tag("span", name), class_="name"), scope="row"), cells, class_="ours" if name == found.ours else None))
    shares = {name: np.array([accuracy(e, a) for a in _CURVE]) for name, e in found.errors.items()}
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="methods")
    why = "Error: |predicted - measured| over |measured|, of the twist with its spin times the radius of gyration. Small figures: what chance leaves open, 90 %."
    left = tag("div", table, tag("p", f"Judged {judged or f'on {len(found.measured)} impacts held out'}. ", why, " ", found.missing(), class_="quiet"))
    return _card("How good it is", tag("div", left, tag("div", charts.curves(_CURVE, shares, marked=ALPHAS), class_="plot drawing"), class_="pair"))


def _meter(share: float, i: int) -> Markup:
    """A thin bar of a share."""
    return tag("svg", tag("rect", class_="track", width="100%", height=4, rx=2), tag("rect", class_=f"fill {charts.series(i)}", width=f"{100 * share:.1f}%", height=4, rx=2),
               class_="meter", height=4, aria_hidden="true")


def _legend(found: Comparison) -> Markup:
    return tag("div", [tag("button", charts.key(i), tag("span", name), type="button", data_s=charts.series(i), aria_pressed="true") for i, name in enumerate(found.errors)],
               class_="legend")


def _agreement(found: Comparison, labels: Sequence[str]) -> Markup:
    names = [c.removesuffix("_after") for c in after_columns(found.measured.shape[1] == 3)]
    panels = [charts.against(found.measured[:, j], {m: p[:, j] for m, p in found.predicted.items()}, labels, name=name, unit=_UNITS[name[0]]) for j, name in enumerate(names)]
    shown = len(charts.thinned(len(labels)))
    hint = "On the line prediction and measurement agree; hollow marks lie beyond the chart." + (f" {shown} of {len(labels)} impacts are drawn." if shown < len(labels) else "")
    return _card("Predicted against measured", _legend(found), tag("div", panels, class_="panels plot"), tag("p", hint, class_="quiet"))


def _circumstances(found: Comparison, labels: Sequence[str], circumstances: Mapping[str, np.ndarray]) -> Markup:
    panels = [charts.over(x, found.errors, labels, name=name) for name, x in circumstances.items()]
    hint = "Lines: the median of each fifth of the impacts, from low to high."
    return _card("Where it errs", _legend(found), tag("div", panels, class_="panels wide plot"), tag("p", hint, class_="quiet"))


def _parameters(params: Sequence[Param], estimates: Sequence[Estimated]) -> Markup | None:
    if not params:
        return None
    head = tag("tr", [tag("th", name, scope="col", class_=c) for name, c in
                      (("parameter", None), ("identified", "num"), ("90 % interval", "num"), ("within its range", "bar"), ("verdict", None))])
    rows = []
    for p, e in zip(params, estimates, strict=True):
        unit = " " + p.unit.replace("^2", "²").replace("^3", "³") if p.unit else ""
        status = str(e.status)
        kind = status.replace(" ", "-") if status in _VERDICTS else "other"
        rows.append(tag("tr", tag("th", p.name, tag("small", p.target, class_="mono"), scope="row"), tag("td", tag("b", _number(e.value)), unit, class_="num", data_h="identified"),
                        tag("td", f"{_number(e.low)} to {_number(e.high)}", class_="num", data_h="90 % interval"), tag("td", _range(p, e, kind), class_="bar"),
                        tag("td", tag("span", status, class_=f"chip {kind}"), data_h="verdict")))
    met = [s for s in _VERDICTS if any(str(e.status) == s for e in estimates)]
    meaning = tag("dl", [(tag("dt", tag("span", s, class_=f"chip {s.replace(' ', '-')}")), tag("dd", _VERDICTS[s])) for s in met], class_="verdicts")
    hint = "Bar: the interval within the range allowed; dot: the identified value; tick: the nominal value. Effective values: what makes the model fit, not material constants."
    return _card("Parameters", tag("table", tag("thead", head), tag("tbody", rows), class_="params"), meaning, tag("p", hint, class_="quiet"))


def _range(p: Param, e: Estimated, kind: str) -> tuple[Markup, Markup]:
    """Interval, value and nominal value on the parameter's own scale, from low to high."""
    low, value, high, nominal = (f"{1 + 98 * float(np.clip((u + 1) / 2, 0, 1)):.1f}%" for u in to_unit([p], np.array([[e.low], [e.value], [e.high], [p.nominal]]))[:, 0])
    drawn = tag("svg", tag("line", class_="track", x1="1%", x2="99%", y1=9, y2=9), tag("line", class_="span", x1=low, x2=high, y1=9, y2=9),
                tag("line", class_="nominal", x1=nominal, x2=nominal, y1=2, y2=16), tag("circle", class_="value", cx=value, cy=9, r=4.5),
                class_=f"range {kind}", height=18, role="img", aria_label=f"{_number(e.value)} in {_number(p.low)} to {_number(p.high)}")
    ends = tag("span", tag("span", _number(p.low)), tag("span", "log scale") if p.scale == "log" else None, tag("span", _number(p.high)), class_="ends")
    return drawn, ends


def _restitution(reading: Mapping[str, Sequence[float]] | None) -> Markup | None:
    if not reading or not len(reading["speeds"]):
        return None
    speeds, sets = [float(s) for s in reading["speeds"]], {name: [float(v) for v in reading[name]] for name in ("identified", "nominal")}
    head = tag("tr", tag("th", "approach speed, m/s", scope="col", class_="num"), [tag("th", charts.key(i), name, scope="col", class_="num") for i, name in enumerate(sets)])
    rows = [tag("tr", tag("td", f"{s:.2f}", class_="num"), [tag("td", f"{v[j]:.2f}", class_="num") for v in sets.values()]) for j, s in enumerate(speeds)]
    said = "What the contact parameters mean: speed after over speed before of a head-on impact in MuJoCo. 0 sticks, 1 loses nothing."
    table = tag("div", tag("table", tag("thead", head), tag("tbody", rows)), tag("p", said, class_="quiet"))
    return _card("Restitution", tag("div", table, tag("div", charts.restitutions(speeds, sets), class_="drawing"), class_="pair"))


def _spread(found: Comparison, spread: np.ndarray) -> Markup:
    names = [c.removesuffix("_after") for c in after_columns(found.measured.shape[1] == 3)]
    shares = found.within(spread)  # (2, k)
    head = tag("tr", tag("th", "outcome", scope="col"), [tag("th", f"within {s} sd", tag("small", f"{e} % expected"), scope="col") for s, e in ((1, "68"), (2, "95"))])
    rows = []
    for name, pair in [("all", shares.mean(1)), *zip(names, shares.T, strict=True)]:
        cells = [tag("td", tag("span", f"{100 * share:.0f} %", class_="figure"), _gauge(float(share), float(e)), class_="gauged") for share, e in zip(pair, EXPECTED, strict=True)]
        rows.append(tag("tr", tag("th", name, scope="row"), cells, class_="ours" if name == "all" else None))
    said = f"{spread_verdict(shares.mean(1), len(found.measured))} Tick: the share that a spread stated honestly would hold."
    return _card("Is its stated spread honest?", tag("table", tag("thead", head), tag("tbody", rows), class_="spread"), tag("p", said, class_="quiet"))


def _gauge(share: float, expected: float) -> Markup:
    at = f"{100 * expected:.1f}%"
    return tag("svg", tag("rect", class_="track", y=5, width="100%", height=8, rx=2), tag("rect", class_="fill s0", y=5, width=f"{100 * share:.1f}%", height=8, rx=2),
               tag("line", class_="nominal", x1=at, x2=at, y1=1, y2=17), class_="gauge", height=18, aria_hidden="true")


def _origin(data: str, source: str, fitted: int, held_out: int, *, notes: Sequence[str], seconds: Mapping[str, float], versions: Mapping[str, str]) -> Markup:
    facts = [("data", data), ("source", _SOURCES.get(source, (source, ""))[0]), ("impacts fitted", str(fitted)), ("impacts held out", str(held_out))]
    facts += [(f"time, {name}", f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min") for name, value in seconds.items()]
    facts += [("made with", ", ".join(f"{name} {value}" for name, value in versions.items()))] if versions else []
    told = tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in facts], class_="facts")
    first, rest = [tag("li", note) for note in notes[:_NOTES]], [tag("li", note) for note in notes[_NOTES:]]
    said = (tag("h3", "Notes of the import"), tag("ul", first), tag("details", tag("summary", f"{len(rest)} more"), tag("ul", rest)) if rest else None) if notes else None
    return _card("Where it comes from", told, said)


def _tight(text: str) -> str:
    """Text whose numbers keep to their units where lines break."""
    return re.sub(r"(?<=\d) (?=(%|m/s|mm|s)\b|%)", "\u00a0", text)


def _number(value: float) -> str:
    """A number to three significant digits, its exponent written short."""
    return re.sub(r"e([+-])0*", lambda m: "e" + m[1].strip("+"), number(value))

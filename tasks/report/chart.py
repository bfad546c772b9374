"""PURE: curves as one inline SVG, readable in light and dark, with the values as tooltips."""

from __future__ import annotations

from html import escape

from tasks.report.build import Curve

WIDTH, HEIGHT = 860, 260
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 14, 34
COLOURS = 6


def chart(drawn: list[Curve], title: str, line: float | None = None, line_label: str = "") -> str:
    """Curves of shares between 0 and 1 over seconds, with `line` as a dashed level; a sentence when there are none."""
    if not drawn:
        return f'<p class="none">{escape(title)}: nothing was measured.</p>'
    first = min(curve.points[0][0] for curve in drawn)
    span = max(curve.points[-1][0] for curve in drawn) - first or 1.0
    values = [value for curve in drawn for _, value in curve.points] + ([] if line is None else [line])
    low, high = min(0.0, *values), max(1.0, *values)
    if low == 0 and high == 1 and min(values) > 0.5:
        low = 0.5

    def x(seconds: float) -> float:
        return LEFT + (seconds - first) / span * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for step in range(5):
        level, moment = low + (high - low) * step / 4, first + span * step / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{level:.2f}</text>')
        parts.append(f'<text x="{x(moment):.1f}" y="{HEIGHT - 12}" text-anchor="middle">{moment:.1f} s</text>')
    if line is not None:
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(line):.1f}" y2="{y(line):.1f}"/>')
        label = f"{escape(line_label)} {line:g}"
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{y(line) - 5:.1f}" text-anchor="end">{label}</text>')
    for position, curve in enumerate(drawn):
        name = escape(f"{curve.branch}: {curve.metric}")
        path = " ".join(f"{x(seconds):.1f},{y(value):.1f}" for seconds, value in curve.points)
        parts.append(f'<g class="c{position % COLOURS}"><polyline points="{path}"/>')
        parts.extend(
            f'<circle cx="{x(seconds):.1f}" cy="{y(value):.1f}" r="3"><title>{name} = {value:.4f} at {seconds:.1f} s'
            "</title></circle>"
            for seconds, value in curve.points
        )
        parts.append("</g>")
    legend = "".join(
        f'<li class="c{position % COLOURS}">{escape(curve.branch)}: {escape(curve.metric)}</li>'
        for position, curve in enumerate(drawn)
    )
    return f'<figure>{"".join(parts)}</svg><ul class="legend">{legend}</ul></figure>'

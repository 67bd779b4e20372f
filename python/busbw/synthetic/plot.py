"""The table as a picture: bars of images per second, a group for every number of devices."""

from html import escape

from busbw.synthetic.result import Row, Table

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 60, 60
_COLOURS = ("#7f8fa6", "#2a6fb0", "#e08b2d", "#3a9d5d", "#9b59b6", "#c0392b", "#16a085", "#34495e")


def svg(table: Table) -> str:
    """Return the picture as SVG text."""
    series = list(dict.fromkeys((row.network, row.stack) for row in table.rows))
    groups = sorted({row.devices for row in table.rows})
    tallest = max(row.images_per_s for row in table.rows)
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    group_width = plot_width / len(groups)
    bar_width = 0.8 * group_width / len(series)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(
            _LEFT, 20, f"{table.model}, batch {table.batch_size} per {table.device}: images/s and scaling efficiency"
        ),
    ]
    for place, (network, stack) in enumerate(series):
        x = _LEFT + place * plot_width / len(series)
        parts.append(f'<rect x="{x:.0f}" y="32" width="10" height="10" fill="{_COLOURS[place % len(_COLOURS)]}"/>')
        parts.append(_text(x + 14, 42, f"{stack} ({network})"))
    for row in table.rows:
        place = series.index((row.network, row.stack))
        x = _LEFT + groups.index(row.devices) * group_width + 0.1 * group_width + place * bar_width
        height = plot_height * row.images_per_s / tallest
        y = _TOP + plot_height - height
        colour = _COLOURS[place % len(_COLOURS)]
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{0.9 * bar_width:.1f}" height="{height:.1f}" fill="{colour}"/>'
        )
        parts.append(_text(x + 0.45 * bar_width, y - 4, _label(table, row), anchor="middle"))
    for place, devices in enumerate(groups):
        x = _LEFT + (place + 0.5) * group_width
        parts.append(
            _text(x, _TOP + plot_height + 20, f"{devices} {table.device}{'s' if devices > 1 else ''}", "middle")
        )
    return "\n".join([*parts, "</svg>", ""])


def _label(table: Table, row: Row) -> str:
    efficiency = table.efficiency(row)
    return f"{row.images_per_s:.0f}" + ("" if efficiency is None or row.devices == 1 else f" ({efficiency:.0f}%)")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'

#!/usr/bin/env python3
"""Draws bench/speed.csv: tokens a second by streams, beside other engines. Standard library only.

    bench/speed_plot.py > doc/speed.svg

Bars of one workload share a scale, so that what differs a hundredfold can be seen in one picture; each bar has its
figure. Where there are two rounds the bar is their mean. A reader's dark or light theme decides the colours."""

import csv
import sys
from pathlib import Path
from xml.sax.saxutils import escape

PANELS = (
    ("engine", "The engine on one H200"),
    ("server", "The HTTP server on one H200"),
    ("cpu", "16 cores of a Xeon with AMX"),
)
NOTES = (
    "Tokens a second with random weights in Qwen3-0.6B's shape; 128/512: tokens in and out. November 2026, vLLM 0.26.0.",
    "vLLM x 4: with four API servers. From 256 streams on the host code of vLLM's server is the limit, not the GPU.",
)
PANEL_WIDTH, NAME_WIDTH, BAR_WIDTH, BAR, GAP, TOP = 306, 82, 126, 15, 14, 30

STYLE = """
    text { font: 12px sans-serif; fill: #1f2328; } .head { font-weight: bold; font-size: 13px; }
    .soft { fill: #57606a; } .ours { fill: #2f6fd0; } .theirs { fill: #b4b0a8; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; } .soft { fill: #9da7b3; } .ours { fill: #5b95ea; } .theirs { fill: #6d6962; }
    }"""


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def figure(row):
    low, high = (f"{float(row[end]):,.10g}" for end in ("low", "high"))
    return low if low == high else f"{low}\u2013{high}"


def mean(row):
    return (float(row["low"]) + float(row["high"])) / 2


def draw_group(out, x, y, workload, rows):
    """The bars of one workload. Returns the y below them."""
    out.append(f'  <text class="soft" x="{x}" y="{y + 11}">{escape(workload)}</text>')
    y += 17
    largest = max(map(mean, rows))
    for row in rows:
        kind = "ours" if row["system"] == "nanovllm" else "theirs"
        width = max(1, round(BAR_WIDTH * mean(row) / largest))
        out.append(f'  <text x="{x}" y="{y + 11}">{escape(row["system"])}</text>')
        out.append(f'  <rect class="{kind}" x="{x + NAME_WIDTH}" y="{y + 1}" width="{width}" height="{BAR - 3}" rx="2"/>')
        out.append(f'  <text x="{x + NAME_WIDTH + width + 5}" y="{y + 11}">{figure(row)}</text>')
        y += BAR
    return y + GAP


def draw(rows):
    out, bottom = [], 0
    for i, (table, title) in enumerate(PANELS):
        x, y = i * PANEL_WIDTH, TOP
        out.append(f'  <text class="head" x="{x}" y="14">{escape(title)}</text>')
        mine = [row for row in rows if row["table"] == table and row["workload"] != "start"]
        for workload in dict.fromkeys(row["workload"] for row in mine):
            y = draw_group(out, x, y, workload, [row for row in mine if row["workload"] == workload])
        bottom = max(bottom, y)
    for i, note in enumerate(NOTES):
        out.append(f'  <text class="soft" x="0" y="{bottom + 8 + 16 * i}">{escape(note)}</text>')
    width, height = PANEL_WIDTH * len(PANELS), bottom + 16 * len(NOTES)
    return "\n".join((
        '<!-- Made by bench/speed_plot.py from bench/speed.csv. -->',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        '  <title id="title">Tokens a second by streams, beside vLLM, nano-vllm and ik_llama.cpp</title>',
        f"  <style>{STYLE}\n  </style>", *out, "</svg>", ""))


if __name__ == "__main__":
    sys.stdout.write(draw(read_rows(Path(__file__).resolve().parent / "speed.csv")))

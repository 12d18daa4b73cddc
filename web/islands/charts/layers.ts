/** Layers under and over a chart's lines: noise, environment changes, flagged changes and the pinned point. */

import type uPlot from "uplot";
import { type Chart, colour, height, type Line, type Point } from "./chart";

const GAP = 5;

/** Draws the noise around each line's levels, and environment changes. */
export function drawUnder(u: uPlot, chart: Chart): void {
  drawBands(u, chart);
  for (const line of chart.lines) drawNoise(u, chart, line);
  drawBreaks(u, chart);
}

/** Draws flagged changes and the pinned point. */
export function drawOver(u: uPlot, chart: Chart, kept: Point | undefined): void {
  for (const mark of chart.marks) {
    const line = chart.lines[mark.line];
    if (line) drawFlag(u, spot(u, chart, line, line.numbers.indexOf(mark.number)), mark.up, flagColour(mark.outcome));
  }
  for (const line of chart.lines) {
    const at = kept?.line.target === line.target ? line.numbers.indexOf(kept.line.numbers[kept.at] ?? 0) : -1;
    if (at >= 0) drawRing(u, spot(u, chart, line, at));
  }
}

function flagColour(outcome: string): string {
  return colour({ better: "good", worse: "bad" }[outcome] ?? "calm");
}

/** The position of a point on the canvas. */
function spot(u: uPlot, chart: Chart, line: Line, at: number): [number, number] {
  return [u.valToPos(line.xs[at] ?? 0, "x", true), u.valToPos(height(chart, line, line.values[at] ?? 0), "y", true)];
}

function drawNoise(u: uPlot, chart: Chart, line: Line): void {
  const { ctx, bbox } = u;
  if (!line.noise) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.globalAlpha = 0.14;
  ctx.fillStyle = colour(`line-${line.colour}`);
  for (const [first, last, value] of line.levels) {
    const [left, right] = [u.valToPos(first, "x", true) - 2, u.valToPos(last, "x", true) + 2];
    const y = (shown: number): number => u.valToPos(height(chart, line, shown), "y", true);
    const top = y(value * (1 + line.noise));
    ctx.fillRect(left, top, right - left, y(value / (1 + line.noise)) - top);
  }
  ctx.restore();
}

/** Shades every second environment. */
function drawBands(u: uPlot, chart: Chart): void {
  const { ctx, bbox } = u;
  const within = (x: number): number => Math.min(Math.max(x, bbox.left), bbox.left + bbox.width);
  ctx.save();
  ctx.fillStyle = colour("calm-ground");
  ctx.globalAlpha = 0.6;
  for (const [from, to] of chart.bands) {
    const left = within(u.valToPos(from, "x", true));
    const right = to === null ? bbox.left + bbox.width : within(u.valToPos(to, "x", true));
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

/** Draws a vertical line for each environment change, labelled if there is space. */
function drawBreaks(u: uPlot, chart: Chart): void {
  const { ctx, bbox } = u;
  const unit = devicePixelRatio;
  const taken: [number, number][] = [];
  ctx.save();
  ctx.font = `${11 * unit}px system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.fillStyle = colour("faint");
  ctx.lineWidth = 1.5 * unit;
  ctx.setLineDash([4 * unit, 4 * unit]);
  for (const { line, x: value, label } of chart.breaks) {
    const x = u.valToPos(value, "x", true);
    ctx.strokeStyle = colour(`line-${chart.lines[line]?.colour}`);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const long = ctx.measureText(label).width;
    const isFree = (begin: number): boolean =>
      begin >= 0 && begin + long <= ctx.canvas.width && !taken.some(([low, high]) => begin <= high && begin + long >= low);
    const begin = [x, x - long].find(isFree);
    if (begin === undefined) continue;
    taken.push([begin - GAP * unit, begin + long + GAP * unit]);
    ctx.fillText(label, begin, bbox.top - 2 * unit);
  }
  ctx.restore();
}

function drawFlag({ ctx }: uPlot, [x, y]: [number, number], up: boolean, fill: string): void {
  const unit = devicePixelRatio;
  const way = up ? -unit : unit;
  ctx.beginPath();
  ctx.moveTo(x, y + 18 * way);
  ctx.lineTo(x - 6 * unit, y + 8 * way);
  ctx.lineTo(x + 6 * unit, y + 8 * way);
  ctx.closePath();
  ctx.fillStyle = fill;
  ctx.fill();
}

function drawRing({ ctx }: uPlot, [x, y]: [number, number]): void {
  ctx.strokeStyle = colour("focus");
  ctx.lineWidth = 2.5 * devicePixelRatio;
  ctx.beginPath();
  ctx.arc(x, y, 7 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.stroke();
}

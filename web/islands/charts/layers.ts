/** What lies under and over the lines: noise, spread, changes of environments, flagged changes, points that were chosen. */

import type uPlot from "uplot";
import type { Palette } from "./colours";
import { height, type Kind, type Look, type Placed } from "./placing";
import { type Break, type Chart, nearest } from "./points";

/** A version's artifact for a target, chosen for a comparison. */
export interface Pick {
  readonly number: number;
  readonly target: string;
}

/** Everything that a layer needs to know. */
export interface Scene {
  readonly chart: Chart;
  readonly look: Look;
  readonly kind: Kind;
  readonly placed: readonly Placed[];
  readonly colours: Palette;
  readonly picked: readonly Pick[];
}

const BAND = 0.14;
const SPREAD = 0.45;
/** Pixels between points from which each shows the spread of its runs. */
const ROOMY = 10;
const DASH = [4, 4];
/** Pixels from row to row of the labels above a chart, and above the first of them. */
export const LABEL_ROW = 13;
const ROWS_TOP = 2;

/** Where a point of a line is on the canvas. */
export function spot(u: uPlot, scene: Scene, item: Placed, place: number): [number, number] {
  const value = item.line.values[item.indices[place] ?? 0] ?? 0;
  const y = height(scene.chart, scene.kind, item.line, value);
  return [u.valToPos(item.xs[place] ?? 0, "x", true), u.valToPos(y, "y", true)];
}

/** What lies under the lines. */
export function drawUnder(u: uPlot, scene: Scene): void {
  within(u, (ctx) => {
    for (const item of scene.placed) {
      ctx.fillStyle = ctx.strokeStyle = colour(scene, item);
      drawBands(u, ctx, scene, item);
      drawSpreads(u, ctx, scene, item);
    }
  });
  drawBreaks(u, scene);
}

/** What lies over them. */
export function drawOver(u: uPlot, scene: Scene): void {
  within(u, (ctx) => {
    for (const mark of scene.chart.marks) {
      const at = find(u, scene, mark.line, mark.number);
      if (at) drawFlag(ctx, at, mark.ratio > 1, scene.colours.flags[mark.verdict] ?? scene.colours.text, scene.colours.ground);
    }
    for (const item of scene.placed) drawPicked(u, ctx, scene, item);
  });
}

function within(u: uPlot, draw: (ctx: CanvasRenderingContext2D) => void): void {
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  u.ctx.clip();
  draw(u.ctx);
  u.ctx.restore();
}

function colour(scene: Scene, item: Placed): string {
  return scene.colours.lines[item.line.colour - 1] ?? scene.colours.text;
}

function drawBands(u: uPlot, ctx: CanvasRenderingContext2D, scene: Scene, item: Placed): void {
  const { line } = item;
  if (!line.noise) return;
  ctx.globalAlpha = BAND;
  for (const [first, last, value] of line.levels) {
    const [left, right] = ends(u, scene, item, first, last);
    const y = (figure: number): number => u.valToPos(height(scene.chart, scene.kind, line, figure), "y", true);
    const [one, other] = [y(value * (1 + line.noise)), y(value / (1 + line.noise))];
    const top = Math.min(one, other); // of figures below zero the other way round
    ctx.fillRect(left - 2, top, right - left + 4, Math.max(1, Math.abs(other - one)));
  }
  ctx.globalAlpha = 1;
}

/** A level's first and last pixel; along time, versions that were measured again may lie anywhere. */
function ends(u: uPlot, scene: Scene, item: Placed, first: number, last: number): [number, number] {
  const { numbers } = item.line;
  const at = (index: number): number => (scene.look.byTime ? item.line.times[index] : numbers[index]) ?? 0;
  const one = u.valToPos(at(nearest(numbers, first)), "x", true);
  const other = u.valToPos(at(nearest(numbers, last)), "x", true);
  return [Math.min(one, other), Math.max(one, other)];
}

function drawSpreads(u: uPlot, ctx: CanvasRenderingContext2D, scene: Scene, item: Placed): void {
  const { min = 0, max = 0 } = u.scales["x"] ?? {};
  const from = nearest(item.xs, min);
  const to = nearest(item.xs, max);
  const across = u.valToPos(item.xs[to] ?? 0, "x", true) - u.valToPos(item.xs[from] ?? 0, "x", true);
  if (from < to && across / (to - from) < ROOMY * devicePixelRatio) return;
  ctx.globalAlpha = SPREAD;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([]);
  ctx.beginPath();
  for (let place = from; place <= to; place++) {
    const index = item.indices[place] ?? 0;
    const x = u.valToPos(item.xs[place] ?? 0, "x", true);
    const y = (value: number): number => u.valToPos(height(scene.chart, scene.kind, item.line, value), "y", true);
    ctx.moveTo(x, clamp(u, y(item.line.lows[index] ?? 0)));
    ctx.lineTo(x, clamp(u, y(item.line.highs[index] ?? 0)));
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function clamp(u: uPlot, y: number): number {
  const bottom = u.bbox.top + u.bbox.height;
  return Number.isFinite(y) ? Math.min(Math.max(y, u.bbox.top), bottom) : bottom;
}

/** The rows above a chart, the one next to it first: what labels take of them, and lines that go down from them. */
interface Rooms {
  readonly taken: [number, number][][];
  readonly lines: [number, number][];
}

/** Changes of environments: a line down, and above the chart what changed, where there is room for it. */
function drawBreaks(u: uPlot, scene: Scene): void {
  const { ctx, bbox } = u;
  const rooms: Rooms = { taken: Array.from({ length: scene.chart.rows }, () => []), lines: [] };
  const seen = new Set<number>();
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  ctx.fillStyle = scene.colours.faint;
  for (const item of scene.chart.breaks) {
    const line = scene.chart.lines[item.line];
    const x = u.valToPos(scene.look.byTime ? item.time : item.number - 0.5, "x", true);
    if (!line || x < bbox.left || x > bbox.left + bbox.width) continue;
    const row = seen.has(x) ? undefined : writeLabel(u, item, x, rooms);
    seen.add(x);
    ctx.strokeStyle = scene.colours.lines[line.colour - 1] ?? scene.colours.text;
    drawDown(u, x, row === undefined ? bbox.top : rowTop(rooms, row) + LABEL_ROW * devicePixelRatio);
  }
  ctx.restore();
}

function drawDown(u: uPlot, x: number, from: number): void {
  const { ctx, bbox } = u;
  ctx.setLineDash(DASH.map((length) => length * devicePixelRatio));
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x, Math.min(from, bbox.top));
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** Writes what changed where it lies on no other text and on no line: the row that it is in, undefined where there is no room. */
function writeLabel(u: uPlot, item: Break, x: number, rooms: Rooms): number | undefined {
  const gap = 5 * devicePixelRatio;
  for (const text of [item.label, item.short]) {
    const long = u.ctx.measureText(text).width;
    for (const begin of [x + gap, x - gap - long]) {
      if (begin < 0 || begin + long > u.ctx.canvas.width) continue;
      const row = rooms.taken.findIndex((_, at) => isFree(rooms, x, [begin - gap, begin + long + gap], at));
      if (row < 0) continue;
      rooms.taken[row]?.push([begin, begin + long]);
      rooms.lines.push([x, row]);
      u.ctx.fillText(text, begin, rowTop(rooms, row));
      return row;
    }
  }
  return undefined;
}

function rowTop({ taken }: Rooms, row: number): number {
  return (ROWS_TOP + (taken.length - 1 - row) * LABEL_ROW) * devicePixelRatio;
}

/** Whether a label may lie there: on no other, on no line, and its own line on no other label. */
function isFree({ taken, lines }: Rooms, x: number, [begin, end]: [number, number], row: number): boolean {
  return (
    (taken[row] ?? []).every(([low, high]) => end < low || begin > high) &&
    !taken.slice(0, row).some((there) => there.some(([low, high]) => low <= x && x <= high)) &&
    !lines.some(([line, itsRow]) => itsRow > row && line >= begin && line <= end)
  );
}

function find(u: uPlot, scene: Scene, line: number, number: number): [number, number] | undefined {
  const item = scene.placed[line];
  if (!item) return undefined;
  const index = item.line.numbers.indexOf(number);
  const place = item.indices.indexOf(index);
  return index < 0 || place < 0 ? undefined : spot(u, scene, item, place);
}

function drawFlag(ctx: CanvasRenderingContext2D, at: [number, number], up: boolean, fill: string, ground: string): void {
  const [x, y] = at;
  const unit = devicePixelRatio;
  const way = up ? -unit : unit;
  ctx.beginPath();
  ctx.moveTo(x, y + 18 * way);
  ctx.lineTo(x - 6 * unit, y + 8 * way);
  ctx.lineTo(x + 6 * unit, y + 8 * way);
  ctx.closePath();
  ctx.fillStyle = fill;
  ctx.strokeStyle = ground;
  ctx.lineWidth = unit;
  ctx.fill();
  ctx.stroke();
}

function drawPicked(u: uPlot, ctx: CanvasRenderingContext2D, scene: Scene, item: Placed): void {
  ctx.strokeStyle = scene.colours.focus;
  ctx.lineWidth = 2.5 * devicePixelRatio;
  for (const pick of scene.picked) {
    if (pick.target !== item.line.target) continue;
    const index = item.line.numbers.indexOf(pick.number);
    if (index < 0) continue;
    const [x, y] = spot(u, scene, item, item.indices.indexOf(index));
    ctx.beginPath();
    ctx.arc(x, y, 7 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.stroke();
  }
}

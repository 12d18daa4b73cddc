/** Where points go: the columns that uPlot draws, from the lines of a chart. */

import type uPlot from "uplot";
import { baseOf, type Chart, type Line } from "./points";

/** How all charts of the page are shown. */
export interface Look {
  byTime: boolean;
  shownAs: "value" | "zero" | "change";
  /** What the x axes reach from and to; undefined for everything. */
  zoom: [number, number] | undefined;
}

/** A line's points along the x axis. */
export interface Placed {
  readonly line: Line;
  /** Ascending, each once. */
  readonly xs: readonly number[];
  /** Index of each in the line's own columns. */
  readonly indices: readonly number[];
}

/** A millisecond: points that were measured at one time lie beside each other. */
const APART = 0.001;

/** Puts the points of each line along the x axis. */
export function place(chart: Chart, byTime: boolean): Placed[] {
  return chart.lines.map((line) => (byTime ? alongTime(line) : alongVersions(line)));
}

function alongVersions(line: Line): Placed {
  return { line, xs: line.numbers, indices: line.numbers.map((_, index) => index) };
}

function alongTime(line: Line): Placed {
  const at = (index: number): number => line.times[index] ?? 0;
  const indices = line.numbers.map((_, index) => index).sort((one, other) => at(one) - at(other) || one - other);
  const xs: number[] = [];
  for (const index of indices) xs.push(Math.max(at(index), (xs.at(-1) ?? -Infinity) + APART));
  return { line, xs, indices };
}

/** What figures on the y axis are: themselves, that from zero on, their logarithms, or percent of their line's newest level. */
export type Kind = "plain" | "zero" | "log" | "percent";

/** How a chart's figures are drawn; of levels at or below zero there is no percentage. */
export function kindOf(chart: Chart, look: Look): Kind {
  if (look.shownAs === "change" && chart.lines.every((line) => baseOf(line) > 0)) return "percent";
  if (look.shownAs === "zero") return "zero";
  return chart.log ? "log" : "plain";
}

/** Where a line's figure lies on the y axis. */
export function height(chart: Chart, kind: Kind, line: Line, value: number): number {
  if (kind === "percent") return (value / baseOf(line) - 1) * 100;
  const shown = value / chart.factor;
  return kind === "log" ? Math.log10(shown) : shown;
}

/** Columns for uPlot: every x once, and a column of each line with holes where it has no point. */
export function columns(chart: Chart, kind: Kind, placed: readonly Placed[]): uPlot.AlignedData {
  const all = new Float64Array([...new Set(placed.flatMap((item) => [...item.xs]))]).sort();
  const rows = new Map<number, number>();
  all.forEach((x, row) => rows.set(x, row));
  const filled = placed.map((item) => {
    const column: (number | null)[] = new Array<number | null>(all.length).fill(null);
    item.xs.forEach((x, place) => {
      const value = item.line.values[item.indices[place] ?? 0];
      if (value !== undefined) column[rows.get(x) ?? 0] = height(chart, kind, item.line, value);
    });
    return column;
  });
  return [[...all], ...filled];
}

/** What an x axis reaches from and to when everything is shown. */
export function whole(placed: readonly Placed[], byTime: boolean): [number, number] {
  const firsts = placed.map((item) => item.xs[0] ?? Infinity);
  const lasts = placed.map((item) => item.xs.at(-1) ?? -Infinity);
  const first = Math.min(...firsts);
  const last = Math.max(...lasts);
  const margin = (last - first) * 0.02 || (byTime ? 43_200 : 0.5);
  return [first - margin, last + margin];
}

/** A chart, drawn by uPlot. */

import uPlot from "uplot";
import { type Chart, colour, height, type Line, percent, type Point, withUnit } from "./chart";
import { drawOver, drawUnder } from "./layers";
import { type Links, Tip } from "./tip";

const FONT = "12px system-ui, sans-serif";
const DASHES: readonly number[][] = [[], [7, 4], [2, 4]];
/** Approximate width of an axis letter, pixels. */
const LETTER = 6.6;
/** Distance at which the pointer selects a point, pixels. */
const POINTER_DISTANCE = 40;
/** Pixels per point from which points are drawn individually. */
const POINT_SPACING = 9;
const DAY_S = 86_400;
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "2-digit" });
const hours = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const VERSIONS = [1, 10, 100, 1000, 10_000].flatMap((power) => [power, 2 * power, 5 * power]);

/** What a chart needs from the page. */
export interface Page extends Links {
  /** The last pinned point, on any chart. */
  readonly kept: Point | undefined;
  /** Pins a point and marks it on every chart. */
  keep(point: Point): void;
  /** Shows a range of versions; all without a range. */
  zoom(range?: [number, number]): void;
}

/** A drawn chart. */
export class Drawing {
  readonly u: uPlot;
  private readonly tip: Tip;
  private series: number | null = null;
  private isKept = false;

  constructor(
    private readonly chart: Chart,
    private readonly host: HTMLElement,
    private readonly page: Page,
  ) {
    const columns = chart.lines.map((line): uPlot.AlignedData => [[...line.xs], line.values.map((value) => height(chart, line, value))]);
    this.u = new uPlot(this.options(), uPlot.join(columns), host);
    this.tip = new Tip(chart, page, host);
    this.u.over.addEventListener("click", ({ offsetX, offsetY }) => this.keep(offsetX, offsetY));
    host.addEventListener("keydown", (event) => this.press(event));
  }

  /** Hides the tip. */
  hide(): void {
    this.isKept = false;
    this.tip.box.hidden = true;
  }

  private options(): uPlot.Options {
    const { chart, host, page } = this;
    const wide = (low: number, high: number): [number, number] => widen(low, high, (high - low) * 0.02 || (chart.byTime ? DAY_S / 2 : 0.5));
    return {
      width: host.clientWidth,
      height: host.clientHeight,
      legend: { show: false },
      padding: [16, 16, 0, 0],
      focus: { alpha: 1 },
      cursor: {
        y: false,
        points: { one: true, size: 10 },
        focus: { prox: POINTER_DISTANCE },
        hover: { prox: POINTER_DISTANCE },
        sync: { key: "charts", filters: { pub: (type) => type === "mousemove" } },
        drag: { x: true, y: false, setScale: false, dist: 5 },
        bind: { dblclick: () => () => (page.zoom(), null) },
      },
      scales: {
        x: { time: chart.byTime, range: (_, min, max) => wide(...(chart.span ?? [min, max])) },
        y:
          chart.kind === "log"
            ? { distr: 3, range: (_, min, max) => [roundDown(min), max * 1.1] }
            : { range: (_, min, max) => range(chart, min, max) },
      },
      axes: [xAxis(chart), yAxis(chart)],
      series: [{}, ...chart.lines.map(series)],
      hooks: {
        drawAxes: [(u) => drawUnder(u, chart)],
        draw: [(u) => drawOver(u, chart, page.kept)],
        setSeries: [(_, at) => void (this.series = at)],
        setCursor: [() => this.hover()],
        setSelect: [() => this.select()],
      },
    };
  }

  /** The point under the cursor. */
  private get pointed(): Point | undefined {
    const { data, cursor } = this.u;
    const line = this.chart.lines[(this.series ?? 0) - 1];
    const x = data[0][cursor.idxs?.[this.series ?? 0] ?? -1];
    return line && x !== undefined ? { line, at: line.xs.indexOf(x) } : undefined;
  }

  private hover(): void {
    if (this.isKept) return;
    const point = this.host.matches(":hover, :focus") ? this.pointed : undefined;
    if (point) this.tip.show(this.u, point);
    else this.hide();
  }

  private keep(left: number, top: number): void {
    this.u.setCursor({ left, top });
    const point = this.pointed;
    if (!point) return this.hide();
    this.isKept = true;
    this.tip.keep(this.u, point, this.page.kept);
    this.page.keep(point);
  }

  private press(event: KeyboardEvent): void {
    if (event.target !== this.host) return;
    const { left = 0, top = 0 } = this.u.cursor;
    if (event.key === "Enter") return this.keep(left, top);
    const next = this.next(event.key);
    if (!next) return;
    event.preventDefault();
    this.isKept = false;
    const { line, at } = next;
    this.u.setCursor({ left: this.u.valToPos(line.xs[at] ?? 0, "x"), top: this.u.valToPos(height(this.chart, line, line.values[at] ?? 0), "y") });
  }

  /** The point in the direction of an arrow key; initially the newest one of the first line. */
  private next(key: string): Point | undefined {
    const { lines } = this.chart;
    const [right, down] = [Number(key === "ArrowRight") - Number(key === "ArrowLeft"), Number(key === "ArrowDown") - Number(key === "ArrowUp")];
    const [first] = lines;
    if (!first || (!right && !down)) return undefined;
    const point = this.pointed;
    if (!point) return { line: first, at: first.xs.length - 1 };
    const { line, at } = point;
    if (right) return { line, at: Math.min(Math.max(at + right, 0), line.xs.length - 1) };
    const other = lines[(lines.indexOf(line) + down + lines.length) % lines.length] ?? line;
    return { line: other, at: nearest(other.xs, line.xs[at] ?? 0) };
  }

  private select(): void {
    const { left, width } = this.u.select;
    if (width < 1) return;
    const [low, high] = [this.u.posToVal(left, "x"), this.u.posToVal(left + width, "x")];
    this.u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const isWithin = (x = NaN): boolean => low <= x && x <= high;
    const numbers = this.chart.lines.flatMap((line) => line.numbers.filter((_, at) => isWithin(line.xs[at])));
    if (numbers.length) this.page.zoom([Math.min(...numbers), Math.max(...numbers)]);
  }
}

function nearest(values: readonly number[], wanted: number): number {
  const away = values.map((value) => Math.abs(value - wanted));
  return away.indexOf(Math.min(...away));
}

function series(line: Line): uPlot.Series {
  const stroke = (): string => colour(`line-${line.colour}`);
  return {
    stroke,
    width: line.age ? 1.25 : 2,
    alpha: line.age ? 0.6 : 1,
    dash: DASHES[line.pattern % DASHES.length] ?? [],
    points: { size: 6, width: 0, fill: stroke, show: ({ width }) => line.xs.length * POINT_SPACING <= width },
  };
}

/** Rounds down to one significant digit: ticks of a logarithmic axis start at its lower end. */
function roundDown(value: number): number {
  const power = Math.floor(Math.log10(value));
  return Number(`${Math.floor(value / 10 ** power)}e${power}`);
}

function widen(low: number, high: number, by: number): [number, number] {
  return [low - by, high + by];
}

/** A padded range, so wide that noise does not fill it and so narrow that 5 % are a quarter of it. */
function range(chart: Chart, low: number, high: number): [number, number] {
  const least = chart.kind === "change" ? 15 : 0.15 * Math.max(Math.abs(low), Math.abs(high)) || 1;
  const spare = Math.max(0, least - (high - low)) / 2;
  const [bottom, top] = widen(low, high, spare + Math.max(least, high - low) * 0.08);
  if (chart.kind === "zero") return [Math.min(0, bottom), Math.max(0, top)];
  return [chart.kind === "value" && low >= 0 ? Math.max(0, bottom) : bottom, top];
}

function axis(): uPlot.Axis {
  const line = { stroke: () => colour("line"), width: 1 };
  return { font: FONT, labelFont: FONT, stroke: () => colour("faint"), grid: line, ticks: line };
}

function xAxis({ byTime, span }: Chart): uPlot.Axis {
  const common: uPlot.Axis = { ...axis(), grid: { show: false }, size: 34, labelSize: 16, labelGap: 0 };
  if (span && !byTime) return { ...common, size: 24, incrs: VERSIONS, values: (_, splits) => splits.map((at) => (at > 0 ? String(at) : "")) };
  if (!byTime) return { ...common, label: "version", incrs: VERSIONS, values: (_, splits) => splits.map((at) => (at > 0 ? String(at) : "")) };
  const values: uPlot.Axis.Values = (_, splits, __, ___, step) => splits.map((at) => (step < DAY_S ? hours : days).format(at * 1000));
  return { ...common, label: "measured on, in your time zone", space: 90, values };
}

function yAxis({ kind, unit, span }: Chart): uPlot.Axis {
  return {
    ...axis(),
    ...(span ? { space: 26 } : {}),
    size: (_, values) => Math.max(56, ...(values ?? []).map((text) => (text?.length ?? 0) * LETTER + 20)),
    // uPlot passes null for omitted ticks of a logarithmic axis.
    values: (_, splits) => splits.map((at: number | null) => (at === null ? "" : kind === "change" ? percent(at) : withUnit(at, unit))),
  };
}

/** A chart on a canvas. */

import uPlot from "uplot";
import { label, logarithmic, spread } from "./axes";
import { type Palette } from "./colours";
import { drawOver, drawUnder, LABEL_ROW, type Pick, type Scene } from "./layers";
import { columns, type Kind, kindOf, type Look, place, whole } from "./placing";
import type { Chart } from "./points";

const FONT = "12px system-ui, sans-serif";
const DASHES: readonly (readonly number[])[] = [[], [7, 4], [2, 4]];
/** Pixels of a letter of an axis, about. */
const LETTER = 6.6;
/** What stands at ticks that are a year, a month, a day, an hour, ... apart; uPlot says what each place is. */
const TIMES: readonly (readonly (string | number | null)[])[] = [
  [31_536_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_419_200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86_400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, ":{ss}", "\n{D} {MMM} {HH}:{mm}", null, "\n{D} {MMM} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];
/** Pixels between points from which each is drawn as one. */
const ROOMY = 9;
const VERSIONS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000];

/** What a chart asks of the page. */
export interface Page {
  readonly look: Look;
  readonly picked: readonly Pick[];
  readonly colours: Palette;
  /** The reader chose a part of the x axis; nothing for all of it. */
  zoom(range: [number, number] | undefined): void;
}

/** A chart that is drawn. */
export interface Drawing {
  readonly u: uPlot;
  /** What is drawn now. */
  scene(): Scene;
  /** Draws it anew after the part that is shown or what was chosen changed. */
  refresh(): void;
  /** Draws other points, or the same ones over other axes. */
  take(chart: Chart): void;
  /** Takes it away. */
  stop(): void;
}

/** Draws a chart into a node, and again whenever the node's size changes. */
export function draw(chart: Chart, host: HTMLElement, page: Page): Drawing {
  let made = make(chart, host, page);
  const drawing: Drawing = {
    get u() {
      return made.u;
    },
    scene: () => made.scene(),
    refresh: () => {
      const [min, max] = page.look.zoom ?? made.all;
      made.u.setScale("x", { min, max });
      made.u.redraw(false);
    },
    take: (other) => {
      made.u.destroy();
      made = make(other, host, page);
    },
    stop: () => {
      watcher.disconnect();
      made.u.destroy();
    },
  };
  const watcher = new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = host;
    if (width !== made.u.width || height !== made.u.height) made.u.setSize({ width, height });
  });
  watcher.observe(host);
  return drawing;
}

interface Made {
  readonly u: uPlot;
  readonly all: [number, number];
  scene(): Scene;
}

function make(chart: Chart, host: HTMLElement, page: Page): Made {
  const placed = place(chart, page.look.byTime);
  const all = whole(placed, page.look.byTime);
  const kind = kindOf(chart, page.look);
  const scene = (): Scene => ({ chart, look: page.look, kind, placed, colours: page.colours, picked: page.picked });
  const options: uPlot.Options = {
    width: host.clientWidth,
    height: host.clientHeight,
    legend: { show: false },
    padding: [16 + LABEL_ROW * Math.max(0, chart.rows - 1), 16, 0, 0],
    cursor: {
      points: { show: false },
      y: false,
      drag: { x: true, y: false, setScale: false, dist: 5 },
      bind: { dblclick: () => () => (page.zoom(undefined), null) },
    },
    scales: {
      x: { time: page.look.byTime, range: (_, min, max) => (min === null || max === null ? all : [min, max]) },
      y: { range: (_, min, max) => spread(min ?? 0, max ?? 1, kind) },
    },
    axes: [acrossAxis(page), upAxis(chart, kind, page)],
    series: [{}, ...chart.lines.map((_, index) => series(chart, index, page))],
    hooks: {
      drawAxes: [(u) => drawUnder(u, scene())],
      draw: [(u) => drawOver(u, scene())],
      setSelect: [(u) => select(u, page)],
    },
  };
  const u = new uPlot(options, columns(chart, kind, placed), host);
  const [min, max] = page.look.zoom ?? all;
  u.setScale("x", { min, max });
  return { u, all, scene };
}

function select(u: uPlot, page: Page): void {
  const { left, width } = u.select;
  if (width < 1) return;
  const range: [number, number] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  page.zoom(range);
}

function series(chart: Chart, index: number, page: Page): uPlot.Series {
  const line = chart.lines[index];
  if (!line) throw new Error("a line for each series");
  const stroke = (): string => page.colours.lines[line.colour - 1] ?? page.colours.text;
  return {
    stroke,
    width: line.age ? 1.25 : 2,
    alpha: line.age ? 0.6 : 1,
    dash: [...(DASHES[line.pattern % DASHES.length] ?? [])],
    spanGaps: true,
    points: { size: 6, width: 0, fill: stroke, show: (u, _, from, to) => line.numbers.length === 1 || (to - from) * ROOMY <= u.width },
  };
}

function common(page: Page): uPlot.Axis {
  const line = { stroke: () => page.colours.line, width: 1 };
  return { font: FONT, stroke: () => page.colours.faint, grid: line, ticks: line };
}

function acrossAxis(page: Page): uPlot.Axis {
  const axis = common(page);
  axis.grid = { show: false };
  axis.size = 34;
  axis.label = page.look.byTime ? "measured on, in your time zone" : "version";
  axis.labelFont = FONT;
  axis.labelSize = 16;
  axis.labelGap = 0;
  if (page.look.byTime) axis.values = TIMES.map((row) => [...row]);
  else {
    axis.incrs = [...VERSIONS];
    // Nothing stands between two versions, nor before the first.
    axis.ticks = { ...axis.ticks, filter: (_, splits) => splits.map((at) => (Number.isInteger(at) && at > 0 ? at : null)) };
    axis.values = (_, splits) => splits.map((at) => (Number.isInteger(at) && at > 0 ? String(at) : ""));
  }
  return axis;
}

function upAxis(chart: Chart, kind: Kind, page: Page): uPlot.Axis {
  const axis = common(page);
  axis.size = (_, values) => Math.max(56, ...(values ?? []).map((text) => text.length * LETTER + 20));
  axis.values = (_, splits) => splits.map((at) => label(at, kind, chart.unit));
  if (kind === "log") axis.splits = (_, __, min, max) => logarithmic(10 ** min, 10 ** max).map(Math.log10);
  return axis;
}

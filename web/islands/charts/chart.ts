/** Chart data from the server (`pages/performance/points.py`). */

/** A series of one target in one environment; its columns are in the order of the x axis. */
export interface Line {
  readonly target: string;
  readonly machine: string;
  readonly colour: number;
  readonly pattern: number;
  readonly age: number;
  readonly note: string;
  readonly noise: number | null;
  /** The value that changes in percent are relative to. */
  readonly base: number;
  readonly xs: readonly number[];
  readonly numbers: readonly number[];
  readonly times: readonly number[];
  readonly values: readonly number[];
  readonly lows: readonly number[];
  readonly highs: readonly number[];
  readonly counts: readonly number[];
  /** Start and end of each level on the x axis, and its value. */
  readonly levels: readonly (readonly [number, number, number])[];
}

/** A flagged change of a line. */
export interface Mark {
  readonly line: number;
  readonly number: number;
  /** The version that it is compared with. */
  readonly before: number;
  readonly href: string;
  readonly outcome: string;
  readonly up: boolean;
  readonly text: string;
}

/** A change of the environment of a line's target. */
export interface Break {
  readonly line: number;
  readonly x: number;
  readonly label: string;
}

/** A chart. */
export interface Chart {
  readonly unit: string;
  readonly kind: "value" | "log" | "zero" | "change";
  readonly byTime: boolean;
  /** Ends of the x axis of aligned charts. */
  readonly span: readonly [number, number] | null;
  /** Start and end of every second environment of a chart's only target; the last one may have no end. */
  readonly bands: readonly (readonly [number, number | null])[];
  readonly lines: readonly Line[];
  readonly marks: readonly Mark[];
  readonly breaks: readonly Break[];
}

/** A point: its line, and its index in the line's columns. */
export interface Point {
  readonly line: Line;
  readonly at: number;
}

/** The position of a line's value on the y axis. */
export function height(chart: Chart, line: Line, value: number): number {
  return chart.kind === "change" ? (value / line.base - 1) * 100 : value;
}

/** A colour of the page's current theme. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "gray";
}

const values = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, maximumFractionDigits: 0, roundingPriority: "morePrecision" });
const changes = new Intl.NumberFormat("en", { maximumFractionDigits: 1, signDisplay: "exceptZero" });

/** A value with its unit. */
export function withUnit(value: number, unit: string): string {
  return `${values.format(value)} ${unit}`.trimEnd();
}

/** A change in percent. */
export function percent(change: number): string {
  return `${changes.format(change)} %`;
}

/** What the server says of charts: columns of points, and what is marked on them. */

/** A line: a series of one target in one environment. */
export interface Line {
  readonly target: string;
  readonly machine: string;
  readonly colour: number;
  readonly pattern: number;
  readonly age: number;
  readonly note: string;
  readonly noise: number | null;
  readonly numbers: readonly number[];
  readonly times: readonly number[];
  readonly values: readonly number[];
  readonly lows: readonly number[];
  readonly highs: readonly number[];
  readonly counts: readonly number[];
  /** First version, last version, and median of each level. */
  readonly levels: readonly (readonly [number, number, number])[];
}

/** A flagged change of a line. */
export interface Mark {
  readonly line: number;
  readonly number: number;
  readonly before: number;
  readonly verdict: string;
  readonly ratio: number;
  readonly said: string;
  readonly href: string;
}

/** Where the environment of a target changed. */
export interface Break {
  readonly line: number;
  readonly number: number;
  readonly time: number;
  readonly said: string;
  /** What tells most of it, the old and the new; and that in a word or two. */
  readonly label: string;
  readonly short: string;
}

/** A chart's points. */
export interface Chart {
  readonly metric: string;
  readonly unit: string;
  readonly factor: number;
  readonly better: string | null;
  readonly log: boolean;
  /** Rows that are kept above it for what changed in environments. */
  readonly rows: number;
  readonly lines: readonly Line[];
  readonly marks: readonly Mark[];
  readonly breaks: readonly Break[];
}

/** Asks the server for a chart's points; undefined where it has none, or does not answer. */
export async function fetchChart(address: string, unit: string): Promise<Chart | undefined> {
  const response = await fetch(address, { headers: { Accept: "application/json" } });
  if (!response.ok) return undefined;
  const { charts } = (await response.json()) as { charts: Chart[] };
  return charts.find((chart) => chart.unit === unit) ?? charts[0];
}

/** The level of a line that its newest version is on: what relative figures are of. */
export function baseOf(line: Line): number {
  return line.levels.at(-1)?.[2] ?? 1;
}

/** The index of the value in an ascending list that is nearest to one. */
export function nearest(values: readonly number[], wanted: number): number {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((values[middle] ?? 0) < wanted) low = middle + 1;
    else high = middle;
  }
  const before = values[low - 1];
  const here = values[low];
  return before !== undefined && here !== undefined && wanted - before < here - wanted ? low - 1 : low;
}

/** The tip that describes a point, with links once it is pinned. */

import type uPlot from "uplot";
import { type Chart, height, type Mark, percent, type Point, withUnit } from "./chart";

const GAP = 14;
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** URLs of the page. */
export interface Links {
  version(number: number): string;
  compare(before: Point, after: Point): string;
  /** The URL of the model's flagged changes. */
  readonly changes: string;
}

/** The tip of a chart. */
export class Tip {
  readonly box = Object.assign(document.createElement("div"), { className: "tip", hidden: true, role: "status" });

  constructor(
    private readonly chart: Chart,
    private readonly links: Links,
    host: HTMLElement,
  ) {
    host.append(this.box);
  }

  /** Shows a point next to its position. */
  show(u: uPlot, point: Point): void {
    this.box.replaceChildren(...this.lines(point));
    this.box.removeAttribute("data-pinned");
    this.place(u, point);
  }

  /** Pins a point, with links; one compares it with the previously pinned point. */
  keep(u: uPlot, point: Point, earlier: Point | undefined): void {
    this.box.replaceChildren(...this.lines(point), this.linksOf(point, earlier));
    this.box.setAttribute("data-pinned", "");
    this.place(u, point);
  }

  private place(u: uPlot, { line, at }: Point): void {
    this.box.hidden = false;
    const left = u.over.offsetLeft + u.valToPos(line.xs[at] ?? 0, "x");
    const top = u.over.offsetTop + u.valToPos(height(this.chart, line, line.values[at] ?? 0), "y");
    const { offsetWidth: wide, offsetHeight: high } = this.box;
    const x = left + GAP + wide <= u.width ? left + GAP : Math.max(0, left - GAP - wide);
    const y = Math.max(0, Math.min(top - high / 2, u.height - high));
    this.box.style.transform = `translate(${x}px, ${y}px)`;
  }

  private lines({ line, at }: Point): HTMLElement[] {
    const { unit } = this.chart;
    const of = (column: readonly number[]): string => withUnit(column[at] ?? 0, unit);
    const number = line.numbers[at] ?? 0;
    const count = line.counts[at] === 1 ? "one measurement" : `${line.counts[at]} measurements`;
    const spread = line.lows[at] === line.highs[at] ? "" : `runs from ${of(line.lows)} to ${of(line.highs)}, `;
    return [
      paragraph(line.target, "target"),
      paragraph(of(line.values), "value"),
      paragraph(`Version ${number}, ${exact.format((line.times[at] ?? 0) * 1000)}`),
      ...(at > 0 ? [paragraph(changed({ line, at }))] : []),
      paragraph(spread + count, "faint"),
      paragraph([line.machine, line.note].filter(Boolean).join(", "), "faint"),
      ...this.marks({ line, at }).map((mark) => paragraph(mark.text.charAt(0).toUpperCase() + mark.text.slice(1), mark.outcome)),
    ];
  }

  private linksOf(point: Point, earlier: Point | undefined): HTMLElement {
    const { line, at } = point;
    const before: Point[] = at > 0 ? [{ line, at: at - 1 }] : [];
    const isNew = (other: Point): boolean =>
      other.line.target !== line.target || ![line.numbers[at], line.numbers[at - 1]].includes(numberOf(other));
    if (earlier && isNew(earlier)) before.push(earlier);
    const made = paragraph("");
    made.append(link(this.links.version(numberOf(point)), `Version ${numberOf(point)}`));
    for (const other of before) {
      const elsewhere = other.line.target === line.target ? "" : ` on ${other.line.target}`;
      const ends = [other, point].sort((one, two) => numberOf(one) - numberOf(two)) as [Point, Point];
      made.append(" · ", link(this.links.compare(...ends), `Compare with ${numberOf(other)}${elsewhere}`));
    }
    for (const mark of this.marks(point)) {
      if (!before.some((other) => numberOf(other) === mark.before)) made.append(" · ", link(mark.href, `Compare with ${mark.before}`));
      made.append(" · ", link(this.links.changes, "All changes"));
    }
    return made;
  }

  /** The flagged changes at a point. */
  private marks({ line, at }: Point): Mark[] {
    return this.chart.marks.filter((mark) => this.chart.lines[mark.line] === line && mark.number === line.numbers[at]);
  }
}

/** The number of a point's version. */
export function numberOf({ line, at }: Point): number {
  return line.numbers[at] ?? 0;
}

function changed({ line, at }: Point): string {
  const [was = 0, now = 0] = [line.values[at - 1], line.values[at]];
  if (was <= 0 || now <= 0) return `After version ${line.numbers[at - 1]}`; // no percentage can be computed
  const within = Math.abs(Math.log(now / was)) <= Math.log1p(line.noise ?? 0) ? ", within the usual noise" : "";
  return `${percent((now / was - 1) * 100)} compared with version ${line.numbers[at - 1]}${within}`;
}

function paragraph(text: string, kind = ""): HTMLElement {
  return Object.assign(document.createElement("p"), { textContent: text, className: kind });
}

function link(href: string, text: string): HTMLElement {
  return Object.assign(document.createElement("a"), { href, textContent: text });
}

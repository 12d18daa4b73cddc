/** What a point says: under the pointer, and with its links where it was clicked. */

import { type Drawing } from "./drawing";
import { spot } from "./layers";
import { nearest, type Line } from "./points";
import { percent, quantity } from "./words";

/** A point of a line. */
export interface Found {
  readonly line: number;
  readonly index: number;
  /** Where it is, in pixels of the page from the chart's corner. */
  readonly left: number;
  readonly top: number;
}

/** How far from a point, in pixels, the pointer still means it. */
const NEAR = 48;
const GAP = 14;
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** The point that is nearest to a place on a chart, if one is near. */
export function under(drawing: Drawing, left: number, top: number): Found | undefined {
  const { u } = drawing;
  const scene = drawing.scene();
  const x = u.posToVal(left, "x");
  let best: Found | undefined;
  let least = NEAR;
  scene.placed.forEach((item, line) => {
    if (!item.xs.length) return;
    const place = nearest(item.xs, x);
    const [canvasX, canvasY] = spot(u, scene, item, place);
    const at = [(canvasX - u.bbox.left) / devicePixelRatio, (canvasY - u.bbox.top) / devicePixelRatio] as const;
    const away = Math.hypot(at[0] - left, at[1] - top);
    if (away < least) {
      least = away;
      best = { line, index: item.indices[place] ?? 0, left: at[0], top: at[1] };
    }
  });
  return best;
}

/** Where versions and comparisons are. */
export interface Addresses {
  readonly versions: string;
  compare(before: number, after: number, target: string): string;
}

/** The box that says what a point is. */
export class Tip {
  readonly box = document.createElement("div");
  private readonly dot = document.createElement("div");
  private pinned = false;

  private readonly stopped = new AbortController();

  constructor(
    private readonly drawing: Drawing,
    private readonly addresses: Addresses,
    host: HTMLElement,
  ) {
    this.box.className = "tip";
    this.dot.className = "hovered";
    this.box.hidden = this.dot.hidden = true;
    host.append(this.dot, this.box);
    this.box.setAttribute("role", "status");
    const { signal } = this.stopped;
    const escaped = (event: KeyboardEvent): void => (event.key === "Escape" ? this.hide() : undefined);
    const left = (event: MouseEvent): void =>
      event.target instanceof Node && !host.contains(event.target) ? this.hide() : undefined;
    document.addEventListener("keydown", escaped, { signal });
    document.addEventListener("click", left, { signal });
  }

  /** Shows a point as long as nothing is pinned. */
  hover(found: Found | undefined): void {
    if (this.pinned) return;
    if (found) this.show(found);
    else this.hide();
  }

  /** Keeps a point's box, with links. */
  pin(found: Found): void {
    this.pinned = true;
    this.show(found);
  }

  /** Takes the box away. */
  hide(): void {
    this.pinned = false;
    this.box.hidden = this.dot.hidden = true;
  }

  /** Hears nothing more, and is gone: so is its chart. */
  stop(): void {
    this.stopped.abort();
    this.box.remove();
    this.dot.remove();
  }

  private show(found: Found): void {
    this.box.replaceChildren(...this.said(found));
    this.box.toggleAttribute("data-pinned", this.pinned);
    this.box.hidden = this.dot.hidden = false;
    this.move(found);
  }

  private move(found: Found): void {
    const { u } = this.drawing;
    const left = u.bbox.left / devicePixelRatio + found.left;
    const top = u.bbox.top / devicePixelRatio + found.top;
    this.dot.style.transform = `translate(${left}px, ${top}px)`;
    const right = left + GAP + this.box.offsetWidth <= u.width;
    const x = right ? left + GAP : Math.max(0, left - GAP - this.box.offsetWidth);
    const y = Math.min(Math.max(0, top - this.box.offsetHeight / 2), Math.max(0, u.height - this.box.offsetHeight));
    this.box.style.transform = `translate(${x}px, ${y}px)`;
  }

  private said(found: Found): HTMLElement[] {
    const { chart } = this.drawing.scene();
    const line = chart.lines[found.line];
    if (!line) return [];
    const number = line.numbers[found.index] ?? 0;
    const text = (value: number | undefined): string => quantity(value ?? 0, chart.factor, chart.unit);
    const lines = [
      paragraph(line.target, "target"),
      paragraph(text(line.values[found.index]), "figure"),
      paragraph(`Version ${number}, ${exact.format(new Date((line.times[found.index] ?? 0) * 1000))}`),
      paragraph(this.spread(line, found.index, text), "faint"),
      paragraph([line.machine, line.note].filter(Boolean).join(", "), "faint"),
    ];
    const before = line.numbers[found.index - 1];
    if (before !== undefined) lines.splice(3, 0, paragraph(changed(line, found.index, before)));
    for (const mark of chart.marks)
      if (mark.line === found.line && mark.number === number) lines.push(paragraph(sentence(mark.said), `flagged ${mark.verdict}`));
    if (this.pinned) lines.push(this.links(line, number, before));
    return lines;
  }

  private spread(line: Line, index: number, text: (value: number | undefined) => string): string {
    const count = line.counts[index] ?? 1;
    const counted = count === 1 ? "one measurement" : `${count} measurements`;
    if (line.lows[index] === line.highs[index]) return counted;
    return `runs from ${text(line.lows[index])} to ${text(line.highs[index])}, ${counted}`;
  }

  private links(line: Line, number: number, before: number | undefined): HTMLElement {
    const links = document.createElement("p");
    links.append(link(`${this.addresses.versions}${number}`, `Version ${number}`));
    if (before !== undefined)
      links.append(" · ", link(this.addresses.compare(before, number, line.target), `Compare with ${before}`));
    return links;
  }
}

function changed(line: Line, index: number, before: number): string {
  const [was = 0, now = 0] = [line.values[index - 1], line.values[index]];
  if (was <= 0 || now <= 0) return `After version ${before}`; // there is no percentage
  const noise = line.noise ?? 0;
  const within = noise > 0 && Math.abs(Math.log(now / was)) <= Math.log1p(noise) ? ", within the usual noise" : "";
  return `${percent(now / was)} against version ${before}${within}`;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function paragraph(text: string, kind = ""): HTMLElement {
  return Object.assign(document.createElement("p"), { textContent: text, className: kind });
}

function link(href: string, text: string): HTMLElement {
  return Object.assign(document.createElement("a"), { href, textContent: text });
}

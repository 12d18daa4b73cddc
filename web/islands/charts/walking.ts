/** From point to point of a chart with the keyboard. */

import type { Drawing } from "./drawing";
import { spot } from "./layers";
import { nearest } from "./points";
import type { Found } from "./tips";

/** Where somebody is on a chart: the line's place among its lines, and the point's along the x axis. */
interface Place {
  readonly line: number;
  readonly at: number;
}

/** Goes from point to point of what a chart shows; begins at the newest point of its first line. */
export class Walker {
  private place: Place | undefined;

  constructor(private readonly drawing: () => Drawing) {}

  /** The point that a key leads to, undefined for other keys and where there is none. */
  go(key: string): Found | undefined {
    const next = this.next(key);
    if (!next) return undefined;
    this.place = next;
    return this.here();
  }

  /** The point where one is. */
  here(): Found | undefined {
    const { u, scene } = this.drawing();
    const shown = scene();
    const item = this.place && shown.placed[this.place.line];
    if (!this.place || !item || this.place.at >= item.xs.length) return undefined;
    const [x, y] = spot(u, shown, item, this.place.at);
    const [left, top] = [(x - u.bbox.left) / devicePixelRatio, (y - u.bbox.top) / devicePixelRatio];
    return { line: this.place.line, index: item.indices[this.place.at] ?? 0, left, top };
  }

  /** Begins anew: other points were drawn. */
  forget(): void {
    this.place = undefined;
  }

  private next(key: string): Place | undefined {
    const { placed } = this.drawing().scene();
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key)) return undefined;
    if (!this.place) return this.within(0, Infinity);
    const { line, at } = this.place;
    if (key === "Home") return this.within(line, 0);
    if (key === "End") return this.within(line, Infinity);
    if (key === "ArrowLeft" || key === "ArrowRight") return this.within(line, at + (key === "ArrowLeft" ? -1 : 1));
    const other = (line + (key === "ArrowUp" ? -1 : 1) + placed.length) % placed.length;
    return this.within(other, nearest(placed[other]?.xs ?? [], placed[line]?.xs[at] ?? 0));
  }

  /** A place on a line that is in the part of the x axis that is shown; undefined where none is. */
  private within(line: number, at: number): Place | undefined {
    const { u, scene } = this.drawing();
    const { min = -Infinity, max = Infinity } = u.scales["x"] ?? {};
    const xs = scene().placed[line]?.xs ?? [];
    const first = xs.findIndex((x) => x >= min);
    const last = xs.findLastIndex((x) => x <= max);
    return first < 0 || last < first ? undefined : { line, at: Math.min(Math.max(at, first), last) };
  }
}

/** What axes reach from and to, and where their ticks are: as `pages/plots.py` does it. */

import type { Kind } from "./placing";
import { figure } from "./words";

const LEAST = 0.2;
const LEAST_PERCENT = 20;
const PAD = 0.08;
/** Figures beyond it lie at the edge: a range of more than a number holds could not be drawn. */
const FURTHEST = 1e300;
const TICKS = 6;
const FEWEST = 3;

/** A range with room around it, which a few percent of noise do not fill. */
export function spread(low: number, high: number, kind: Kind): [number, number] {
  const [lowest, highest] = [low, high].map((at) => Math.min(Math.max(at, -FURTHEST), FURTHEST)) as [number, number];
  const furthest = Math.max(Math.abs(lowest), Math.abs(highest));
  const least = kind === "percent" ? LEAST_PERCENT : kind === "log" ? Math.log10(1 + LEAST) : LEAST * furthest;
  const spare = Math.max(0, (least || 1) - (highest - lowest)) / 2;
  const pad = (highest - lowest + 2 * spare) * PAD;
  const bottom = lowest - spare - pad;
  const top = highest + spare + pad;
  if (kind === "zero") return [Math.min(0, bottom), Math.max(0, top)];
  const fromZero = kind === "plain" && lowest >= 0 && bottom < 0;
  return [fromZero ? 0 : bottom, top];
}

/** Round figures within a wide range: as many of each power of ten as there is room for. */
export function logarithmic(low: number, high: number): number[] {
  const powers: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) powers.push(power);
  let kept: number[] = [];
  for (const digits of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1, 5], [1]]) {
    const all = powers.flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)));
    kept = all.filter((at) => at >= low && at <= high);
    if (kept.length <= TICKS + 2) break;
  }
  return kept.length < FEWEST ? even(low, high) : kept;
}

/** Round figures, evenly apart: of a range within a power of ten, where the others would be one or none. */
function even(low: number, high: number): number[] {
  const power = 10 ** Math.floor(Math.log10((high - low) / TICKS));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => (high - low) / size <= TICKS) ?? high - low;
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

/** What stands at a tick of the y axis. */
export function label(at: number, kind: Kind, unit: string): string {
  if (kind === "percent") return `${at > 0 ? "+" : ""}${figure(at)} %`;
  return `${figure(kind === "log" ? 10 ** at : at)} ${unit}`.trimEnd();
}

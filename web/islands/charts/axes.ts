/** What axes reach from and to, and where their ticks are: as `pages/plots.py` does it. */

import { figure } from "./words";

const LEAST = 0.2;
const LEAST_PERCENT = 20;
const PAD = 0.08;
const TICKS = 6;

/** A range with room around it, which a few percent of noise do not fill. */
export function spread(low: number, high: number, kind: "plain" | "log" | "percent"): [number, number] {
  const least = kind === "percent" ? LEAST_PERCENT : kind === "log" ? Math.log10(1 + LEAST) : LEAST * Math.abs(high);
  const spare = Math.max(0, (least || 1) - (high - low)) / 2;
  const [bottom, top] = [low - spare, high + spare];
  const pad = (top - bottom) * PAD;
  const fromZero = kind === "plain" && bottom >= 0 && bottom - pad < 0;
  return [fromZero ? 0 : bottom - pad, top + pad];
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
  return kept;
}

/** What stands at a tick of the y axis. */
export function label(at: number, kind: "plain" | "log" | "percent", unit: string): string {
  if (kind === "percent") return `${at > 0 ? "+" : ""}${figure(at)} %`;
  return `${figure(kind === "log" ? 10 ** at : at)} ${unit}`.trimEnd();
}

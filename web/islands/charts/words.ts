/** Figures in words, as the server writes them (`rendering/quantities.py`). */

const LARGE = 1000;
const SMALL = 1e-3;
const HUGE = 1e9;
const DIGITS = 4;
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A figure with four digits that count. */
export function figure(value: number): string {
  const size = Math.abs(value);
  if (size >= LARGE) return size < HUGE ? grouped.format(value) : value.toExponential(3);
  if (value === 0) return "0";
  if (size < SMALL) return value.toExponential(2);
  const decimals = Math.min(DIGITS, Math.max(0, DIGITS - 1 - Math.floor(Math.log10(size))));
  return String(Number(value.toFixed(decimals)));
}

/** A figure in a chart's unit. */
export function quantity(value: number, factor: number, unit: string): string {
  return `${figure(value / factor)} ${unit}`.trimEnd();
}

/** A ratio as a change: `+3.2 %`. */
export function percent(ratio: number): string {
  const change = (ratio - 1) * 100;
  if (!Number.isFinite(change)) return "-";
  if (Math.abs(change) >= LARGE) return `x ${figure(ratio)}`;
  const text = change.toFixed(1);
  if (Number(text) === 0) return "0.0 %";
  return `${change > 0 ? "+" : ""}${text} %`;
}

/** Durations formatted as on the server (`rendering/quantities.py`), so that updates do not move the page. */

const DURATIONS: readonly [number, string, number, string][] = [
  [86_400, "d", 3_600, "h"],
  [3_600, "h", 60, "min"],
  [60, "min", 1, "s"],
];
const MINUTE = 60;
const FEW_SECONDS = 8;
const AGES: readonly [number, string][] = [
  [86_400 * 365, "y"],
  [86_400 * 30, "mo"],
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** `250 ms`, `12.5 s`, `3 min 20 s`, `2 h 5 min`. */
export function formatDuration(seconds: number): string {
  for (const [size, unit, small, rest] of DURATIONS) {
    if (seconds >= size) {
      return `${Math.floor(seconds / size)} ${unit} ${Math.floor((seconds % size) / small)} ${rest}`;
    }
  }
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  return seconds ? `${Math.round(seconds * 1000)} ms` : "0 s";
}

/** Counts up in whole seconds: `29 s`, `3 min 20 s`. */
export function formatElapsed(seconds: number): string {
  const whole = Math.floor(Math.max(0, seconds));
  return whole < MINUTE ? `${whole} s` : formatDuration(whole);
}

/** An estimate, as coarse as it is uncertain: `a few seconds`, `40 s`, `12 min`. */
export function formatRemaining(seconds: number): string {
  if (seconds < FEW_SECONDS) return "a few seconds";
  if (seconds < 10 * MINUTE) {
    const step = seconds < MINUTE ? 5 : 10;
    return formatElapsed(step * Math.round(seconds / step));
  }
  const minutes = Math.round(seconds / MINUTE);
  return minutes < MINUTE ? `${minutes} min` : formatDuration(minutes * MINUTE);
}

/** In the largest unit alone: `42 s`, `3 h`. */
export function formatAge(seconds: number): string {
  const step = AGES.find(([size]) => seconds >= size);
  return step ? `${(seconds / step[0]).toFixed(0)} ${step[1]}` : "0 s";
}

/** The strip above the charts: all versions at a glance, from which a range is chosen by dragging. */

import uPlot from "uplot";
import { colour } from "./chart";

/** The newest target's line over all versions, from the server. */
interface Overview {
  readonly xs: readonly number[];
  readonly values: readonly number[];
  /** The chosen range; null at an open end. */
  readonly chosen: readonly [number | null, number | null] | null;
}

/** Draws the strip, with the chosen range selected. */
export function drawStrip(host: HTMLElement, zoom: (range?: [number, number]) => void): uPlot {
  const { xs, values, chosen } = JSON.parse(host.querySelector("script")?.textContent ?? "") as Overview;
  const [first = 0, last = 0] = [xs[0], xs.at(-1)];
  let ready = false;
  const select = (u: uPlot): void => {
    const { left, width } = u.select;
    if (!ready || width < 1) return;
    const within = xs.filter((x) => u.posToVal(left, "x") <= x && x <= u.posToVal(left + width, "x"));
    if (within.length) zoom([Math.min(...within), Math.max(...within)]);
  };
  const options: uPlot.Options = {
    width: host.clientWidth,
    height: host.clientHeight,
    legend: { show: false },
    padding: [6, 8, 6, 8],
    cursor: {
      x: false,
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: false, dist: 5 },
      bind: { dblclick: () => () => (zoom(), null) },
    },
    scales: { x: { time: false } },
    axes: [{ show: false }, { show: false }],
    series: [{}, { stroke: () => colour("faint"), width: 1.25, points: { show: false } }],
    hooks: { setSelect: [select] },
  };
  const u = new uPlot(options, [[...xs], [...values]], host);
  queueMicrotask(() => {
    if (chosen) {
      const [left, right] = [u.valToPos(Math.max(chosen[0] ?? first, first), "x"), u.valToPos(Math.min(chosen[1] ?? last, last), "x")];
      u.setSelect({ left, top: 0, width: Math.max(right - left, 2), height: u.over.clientHeight }, false);
    }
    ready = true;
  });
  return u;
}

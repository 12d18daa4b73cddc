/** Elapsed and remaining times between two updates from the server, and the bars of running steps. */

import { formatDuration, formatElapsed, formatRemaining } from "./durations";

const TICK_MS = 500;

/** Updates `[data-elapsed]`, `[data-remaining]` and running bars below a node. */
export class ElapsedTimes {
  private since = performance.now();
  private readonly clock = setInterval(() => this.tick(), TICK_MS);

  constructor(private readonly root: HTMLElement) {}

  /** Restarts counting after an update from the server. */
  reset(): void {
    this.since = performance.now();
  }

  /** Stops counting. */
  stop(): void {
    clearInterval(this.clock);
  }

  private tick(): void {
    const passed = (performance.now() - this.since) / 1000;
    for (const element of this.root.querySelectorAll<HTMLElement>("[data-elapsed]")) {
      const seconds = Number(element.dataset["elapsed"]) + passed;
      write(element, "whole" in element.dataset ? formatElapsed(seconds) : formatDuration(seconds));
    }
    for (const element of this.root.querySelectorAll<HTMLElement>("[data-remaining]")) {
      write(element, formatRemaining(Number(element.dataset["remaining"]) - passed));
    }
    for (const bar of this.root.querySelectorAll<SVGRectElement>("[data-usual]")) fill(bar, passed);
  }
}

/** Fills a running step's bar up to its usual time; beyond it no estimate holds. */
function fill(bar: SVGRectElement, passed: number): void {
  const share = (Number(bar.dataset["seconds"]) + passed) / Number(bar.dataset["usual"]);
  bar.setAttribute("width", String(100 * Math.min(1, share)));
  bar.classList.toggle("endless", share >= 1);
}

function write(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

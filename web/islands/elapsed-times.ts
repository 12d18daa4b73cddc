/** Elapsed times between two updates from the server: seconds count up and the bar's last part grows. */

import { formatDuration } from "./durations";

const TICK_MS = 500;

/** Updates `[data-elapsed]` below a node, and the running part of its bar. */
export class ElapsedTimes {
  private since = performance.now();
  private readonly clock = setInterval(() => this.tick(), TICK_MS);

  constructor(private readonly root: HTMLElement) {}

  /** Restarts counting after an update from the server. */
  reset(): void {
    this.since = performance.now();
    for (const part of this.root.querySelectorAll(".bar")) part.removeAttribute("data-width");
  }

  /** Stops counting. */
  stop(): void {
    clearInterval(this.clock);
  }

  private tick(): void {
    const passed = (performance.now() - this.since) / 1000;
    for (const element of this.root.querySelectorAll<HTMLElement>("[data-elapsed]")) {
      element.textContent = formatDuration(Number(element.dataset["elapsed"]) + passed);
    }
    const bar = this.root.querySelector<SVGElement>(".bar");
    const running = bar?.querySelector<SVGRectElement>(".running");
    if (bar && running) grow(bar, running, passed);
  }
}

/** Extends the running part by the seconds since it was drawn. */
function grow(bar: SVGElement, running: SVGRectElement, passed: number): void {
  bar.dataset["width"] ??= running.getAttribute("width") ?? "0";
  const width = Number(bar.dataset["width"]) + passed;
  running.setAttribute("width", String(width));
  bar.setAttribute("viewBox", `0 0 ${Number(running.getAttribute("x")) + width} 10`);
}

/** What takes time goes on between two answers of the server: seconds count, and the bar's last part grows. */

const TICK_MS = 500;
const MINUTE = 60;
const HOUR = 3600;

/** Lets `[data-elapsed]` below a node count, and with them the running part of its bar. */
export class Elapsing {
  private since = performance.now();
  private readonly clock = setInterval(() => this.tick(), TICK_MS);

  constructor(private readonly root: HTMLElement) {}

  /** What is shown now is new. */
  begin(): void {
    this.since = performance.now();
    for (const part of this.root.querySelectorAll(".bar")) part.removeAttribute("data-begun");
  }

  /** Nothing counts any more. */
  end(): void {
    clearInterval(this.clock);
  }

  private tick(): void {
    const passed = (performance.now() - this.since) / 1000;
    for (const element of this.root.querySelectorAll<HTMLElement>("[data-elapsed]")) {
      element.textContent = lasting(Number(element.dataset["elapsed"]) + passed);
    }
    const bar = this.root.querySelector<SVGElement>(".bar");
    const running = bar?.querySelector<SVGRectElement>(".running");
    if (bar && running) grow(bar, running, passed);
  }
}

/** Makes the running part longer by the seconds that passed since it was drawn. */
function grow(bar: SVGElement, running: SVGRectElement, passed: number): void {
  bar.dataset["begun"] ??= running.getAttribute("width") ?? "0";
  const width = Number(bar.dataset["begun"]) + passed;
  running.setAttribute("width", String(width));
  bar.setAttribute("viewBox", `0 0 ${Number(running.getAttribute("x")) + width} 10`);
}

/** A duration in the words of pages/stages.py. */
function lasting(seconds: number): string {
  if (seconds < MINUTE) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / MINUTE);
  return seconds < HOUR ? `${minutes} min ${Math.floor(seconds % MINUTE)} s` : `${Math.floor(minutes / MINUTE)} h ${minutes % MINUTE} min`;
}

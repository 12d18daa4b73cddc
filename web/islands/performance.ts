/** The performance page: charts, and a form that applies at once. */

import type { Chart, Point } from "./charts/chart";
import { Drawing, type Page } from "./charts/drawing";
import { numberOf } from "./charts/tip";
import { fetchPart } from "./page-parts";
import { showTimes } from "./times";

/** The charts of the page. */
class Performance implements Page {
  kept: Point | undefined;
  private drawings: Drawing[] = [];
  private request = new AbortController();
  /** The query of the shown charts. */
  private shown = location.search;
  private readonly resized = new ResizeObserver(() => this.resize());

  constructor(
    private readonly root: HTMLElement,
    private readonly form: HTMLFormElement,
  ) {
    form.addEventListener("change", () => form.checkValidity() && void this.show());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.show();
    });
    addEventListener("popstate", () => location.search !== this.shown && location.reload());
    addEventListener("keydown", ({ key }) => key === "Escape" && this.hide());
    addEventListener("click", ({ target }) => target instanceof Element && !target.closest(".plot") && this.hide());
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"])
      matchMedia(query).addEventListener("change", () => this.redraw());
    this.draw();
  }

  version(number: number): string {
    return `${this.root.dataset["versions"]}${number}`;
  }

  compare(before: Point, after: Point): string {
    const { model, compare } = this.root.dataset;
    const given = new URLSearchParams({ before: `${model}@${numberOf(before)}`, after: `${model}@${numberOf(after)}`, target: before.line.target });
    if (after.line.target !== before.line.target) given.set("with_target", after.line.target);
    return `${compare}?${given}`;
  }

  keep(point: Point): void {
    this.kept = point;
    this.redraw();
  }

  zoom(range?: [number, number]): void {
    for (const [index, name] of ["from", "to"].entries()) {
      const field = this.form.elements.namedItem(name);
      if (field instanceof HTMLInputElement) field.value = String(range?.[index] ?? "");
    }
    void this.show();
  }

  private hide(): void {
    for (const drawing of this.drawings) drawing.hide();
  }

  private redraw(): void {
    for (const { u } of this.drawings) u.redraw(false);
  }

  private resize(): void {
    for (const { u } of this.drawings) {
      const { clientWidth: width, clientHeight: height } = u.root.parentElement ?? u.root;
      if (width !== u.width || height !== u.height) u.setSize({ width, height });
    }
  }

  /** Draws every chart from its embedded data. */
  private draw(): void {
    for (const { u } of this.drawings) u.destroy();
    this.resized.disconnect();
    this.drawings = [...this.root.querySelectorAll<HTMLElement>("[data-chart]")].map((plot) => {
      const began = performance.now();
      const drawing = new Drawing(JSON.parse(plot.querySelector("script")?.textContent ?? "") as Chart, plot, this);
      queueMicrotask(() => (plot.dataset["drawnMs"] = (performance.now() - began).toFixed(1)));
      this.resized.observe(plot);
      return drawing;
    });
  }

  /** Shows the charts for the form's values and updates the URL. */
  private async show(): Promise<void> {
    this.request.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    const address = this.address();
    this.root.setAttribute("aria-busy", "true");
    try {
      const fresh = await fetchPart(address.href, signal);
      if (signal.aborted) return;
      if (address.search !== this.shown) history.pushState(null, "", address);
      this.shown = address.search;
      this.swap(fresh);
    } catch {
      if (!signal.aborted) location.assign(address); // the page from the server shows the error
    }
  }

  private address(): URL {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(this.form)) if (value !== "") query.append(name, String(value));
    if (![...this.form.querySelectorAll<HTMLInputElement>('[name="target"]')].some((box) => !box.checked)) query.delete("target");
    return new URL(`${location.pathname}${query.size ? `?${query}` : ""}`, location.href);
  }

  /** Replaces the charts; form values and open tables are kept. */
  private swap(fresh: DocumentFragment): void {
    const charts = fresh.querySelector("[data-charts]");
    if (!charts) return location.reload();
    for (const table of charts.querySelectorAll<HTMLDetailsElement>("details[data-key]"))
      table.open = this.root.querySelector<HTMLDetailsElement>(`details[data-key="${CSS.escape(table.dataset["key"] ?? "")}"]`)?.open ?? table.open;
    for (const name of ["[data-options] summary", "[data-range]"])
      document.querySelector(name)?.replaceChildren(...(fresh.querySelector(name)?.childNodes ?? []));
    this.root.replaceChildren(...charts.childNodes);
    this.root.removeAttribute("aria-busy");
    showTimes(this.root);
    this.draw();
    const count = this.drawings.length;
    const status = document.querySelector("[data-status]");
    if (status) status.textContent = count ? `${count} ${count === 1 ? "chart" : "charts"} updated.` : (this.root.querySelector(".empty")?.textContent.trim() ?? "");
  }
}

const root = document.querySelector<HTMLElement>("[data-charts]");
const form = document.querySelector<HTMLFormElement>("[data-options]");
if (root && form) new Performance(root, form);

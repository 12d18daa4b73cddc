/** The performance page: charts, and a form that applies at once. */

import type { Chart, Point } from "./charts/chart";
import { Drawing, type Page } from "./charts/drawing";
import { savePicture } from "./charts/picture";
import { drawStrip } from "./charts/strip";
import { numberOf } from "./charts/tip";
import { fetchPart } from "./page-parts";
import { showTimes } from "./times";
import type uPlot from "uplot";

/** Charts are drawn when they are this close to the window. */
const NEAR = "400px";

/** The charts of the page. */
class Performance implements Page {
  kept: Point | undefined;
  private drawings = new Map<HTMLElement, Drawing>();
  private strip: uPlot | undefined;
  private request = new AbortController();
  /** The query of the shown charts. */
  private shown = location.search;
  private readonly resized = new ResizeObserver(() => this.resize());
  private readonly near = new IntersectionObserver((entries) => this.drawNear(entries), { rootMargin: NEAR });

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

  get changes(): string {
    return this.root.dataset["changes"] ?? "";
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
    for (const drawing of this.drawings.values()) drawing.hide();
  }

  private redraw(): void {
    for (const { u } of this.drawings.values()) u.redraw(false);
    this.strip?.redraw(false);
  }

  private resize(): void {
    for (const u of [...[...this.drawings.values()].map((drawing) => drawing.u), ...(this.strip ? [this.strip] : [])]) {
      const { clientWidth: width, clientHeight: height } = u.root.parentElement ?? u.root;
      if (width !== u.width || height !== u.height) u.setSize({ width, height });
    }
  }

  /** Draws the strip, and each chart from its embedded data once it is near. */
  private draw(): void {
    for (const { u } of this.drawings.values()) u.destroy();
    this.strip?.destroy();
    this.strip = undefined;
    this.drawings.clear();
    this.resized.disconnect();
    this.near.disconnect();
    for (const plot of this.plots(this.root)) this.near.observe(plot);
    const strip = this.root.querySelector<HTMLElement>("[data-strip]");
    if (strip) {
      this.strip = drawStrip(strip, (range) => this.zoom(range));
      this.resized.observe(strip);
    }
    for (const button of this.root.querySelectorAll<HTMLButtonElement>("[data-picture]")) {
      button.hidden = false;
      button.addEventListener("click", () => this.save(button));
    }
  }

  private plots(root: Element): HTMLElement[] {
    return [...root.querySelectorAll<HTMLElement>("[data-chart]")];
  }

  private drawNear(entries: IntersectionObserverEntry[]): void {
    for (const { isIntersecting, target } of entries) if (isIntersecting && target instanceof HTMLElement) this.drawOne(target);
  }

  private drawOne(plot: HTMLElement): void {
    this.near.unobserve(plot);
    if (this.drawings.has(plot)) return;
    const began = performance.now();
    this.drawings.set(plot, new Drawing(JSON.parse(plot.querySelector("script")?.textContent ?? "") as Chart, plot, this));
    queueMicrotask(() => (plot.dataset["drawnMs"] = (performance.now() - began).toFixed(1)));
    this.resized.observe(plot);
  }

  /** Saves a section's charts as a picture; those that were not near yet are drawn first. */
  private save(button: HTMLElement): void {
    const section = button.closest<HTMLElement>("[data-section]");
    if (!section) return;
    for (const plot of this.plots(section)) this.drawOne(plot);
    queueMicrotask(() => savePicture(section, button.dataset["picture"] ?? "chart"));
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

  /** Takes over an element's content and class. */
  private take(old: Element | null, fresh: Element | null): void {
    if (!old || !fresh) return;
    old.className = fresh.className;
    old.replaceChildren(...fresh.childNodes);
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
    for (const name of ["[data-options] summary", "[data-range]", ".answer", ".tabs"])
      this.take(document.querySelector(name), fresh.querySelector(name));
    this.root.replaceChildren(...charts.childNodes);
    this.root.removeAttribute("aria-busy");
    showTimes(this.root);
    this.draw();
    const count = this.plots(this.root).length;
    const status = document.querySelector("[data-status]");
    if (status) status.textContent = count ? `${count} ${count === 1 ? "chart" : "charts"} updated.` : (this.root.querySelector(".empty")?.textContent.trim() ?? "");
  }
}

const root = document.querySelector<HTMLElement>("[data-charts]");
const form = document.querySelector<HTMLFormElement>("[data-options]");
if (root && form) new Performance(root, form);

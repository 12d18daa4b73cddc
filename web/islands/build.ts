/** The page of a build while it runs: its state, stages and log change as they come. */

import { enableCopying } from "./copying";
import { Elapsing } from "./elapsing";
import { paced, part, said } from "./fetching";
import { LogPanel } from "./logs";
import { showTimes } from "./times";
import { follow } from "./waking";

const PAUSE_MS = 300;

class LiveBuild {
  private readonly shown = new Map<string, string>();
  private readonly elapsing: Elapsing;
  private stop = (): void => {};

  constructor(
    private readonly root: HTMLElement,
    private readonly log: LogPanel,
  ) {
    this.elapsing = new Elapsing(root);
    const build = paced(() => this.refresh(), PAUSE_MS);
    const lines = paced(() => log.more(), PAUSE_MS);
    if (!this.isOver) this.stop = follow(root.dataset["events"] ?? "", { build, lines });
  }

  private get state(): DOMStringMap {
    return this.root.querySelector<HTMLElement>('[data-live="state"]')?.dataset ?? {};
  }

  private get isOver(): boolean {
    return this.state["over"] === "true";
  }

  private async refresh(): Promise<void> {
    if (this.isOver) return;
    const fresh = await part(this.root.dataset["stages"] ?? "");
    for (const section of fresh.querySelectorAll<HTMLElement>("[data-live]")) this.replace(section);
    this.elapsing.begin();
    if (this.log.isBehind(this.state["attempt"])) await this.log.again();
    if (this.isOver) await this.end();
  }

  private async end(): Promise<void> {
    this.stop();
    this.elapsing.end();
    if (this.log.follows) await this.log.again();
  }

  /** Puts a part in place of the one before, unless nothing changed or its reader is in the middle of it. */
  private replace(fresh: HTMLElement): void {
    const { live, key } = fresh.dataset;
    const old = this.root.querySelector<HTMLElement>(`[data-live="${live}"]`);
    const told = said(fresh);
    if (!live || !old || (key !== undefined && key === old.dataset["key"]) || this.shown.get(live) === told) return;
    const choice = document.getSelection();
    if (old.contains(document.activeElement) || (choice && !choice.isCollapsed && old.contains(choice.anchorNode))) return;
    this.shown.set(live, told);
    for (const [name, value] of Object.entries(fresh.dataset)) old.dataset[name] = value;
    old.replaceChildren(...fresh.childNodes);
    showTimes(old);
    enableCopying(old);
  }
}

const root = document.querySelector<HTMLElement>("[data-build]");
const section = document.getElementById("log");
if (root && section) new LiveBuild(root, new LogPanel(section));

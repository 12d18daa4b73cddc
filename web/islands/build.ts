/** Live updates of a running build's page: state, steps and log. */

import { enableCopyButtons } from "./copy-buttons";
import { ElapsedTimes } from "./elapsed-times";
import { fetchPart, morph, signature, throttle } from "./page-parts";
import { LogPanel } from "./logs";
import { showTimes } from "./times";
import { follow } from "./build-events";
import { EndNotice } from "./build-notices";

const PAUSE_MS = 300;

class LiveBuild {
  private readonly shown = new Map<string, string>();
  private readonly elapsed: ElapsedTimes;
  private readonly notice: EndNotice;
  private stop = (): void => {};

  constructor(
    private readonly root: HTMLElement,
    private readonly log: LogPanel,
  ) {
    this.elapsed = new ElapsedTimes(root);
    const build = throttle(() => this.refresh(), PAUSE_MS);
    const lines = throttle(() => log.appendNew(), PAUSE_MS);
    this.notice = new EndNotice(root, this.state);
    if (!this.isFinished) this.stop = follow(root.dataset["events"] ?? "", { build, lines }, () => this.notice.isWanted);
  }

  private get state(): DOMStringMap {
    return this.root.querySelector<HTMLElement>('[data-live="state"]')?.dataset ?? {};
  }

  private get isFinished(): boolean {
    return this.state["finished"] === "true";
  }

  private async refresh(): Promise<void> {
    if (this.isFinished) return;
    const fresh = await fetchPart(this.root.dataset["steps"] ?? "");
    for (const section of fresh.querySelectorAll<HTMLElement>("[data-live]")) this.replace(section);
    this.elapsed.reset();
    this.notice.update(this.state);
    if (this.log.isBehind(this.state["attempt"])) await this.log.reload();
    if (this.isFinished) await this.finish();
  }

  private async finish(): Promise<void> {
    this.stop();
    this.elapsed.stop();
    if (this.log.follows) await this.log.reload();
  }

  /** Updates a part, unless it is unchanged or the reader is using it. */
  private replace(fresh: HTMLElement): void {
    const { live, key } = fresh.dataset;
    const old = this.root.querySelector<HTMLElement>(`[data-live="${live}"]`);
    const content = signature(fresh);
    if (!live || !old || (key !== undefined && key === old.dataset["key"]) || this.shown.get(live) === content) return;
    const selection = document.getSelection();
    if (old.contains(document.activeElement) || (selection && !selection.isCollapsed && old.contains(selection.anchorNode))) return;
    this.shown.set(live, content);
    morph(old, fresh);
    showTimes(old);
    enableCopyButtons(old);
  }
}

const root = document.querySelector<HTMLElement>("[data-build]");
const section = document.getElementById("log");
if (root && section) new LiveBuild(root, new LogPanel(section));

/** A browser's notification when a build ends: off until the reader asks for it on the build's page. */

const KEY = "pt2hub.notify.";
const FINAL = new Set(["succeeded", "failed", "cancelled"]);

/** The button of a build's page and the notification that it asks for. This tab remembers it for each build. */
export class EndNotice {
  private readonly button: HTMLButtonElement | null;
  private readonly note: HTMLElement | null;

  constructor(root: HTMLElement, state: DOMStringMap) {
    this.button = root.querySelector<HTMLButtonElement>("[data-notify]");
    this.note = root.querySelector<HTMLElement>("[data-notify-note]");
    this.button?.addEventListener("click", () => void this.toggle());
    if (isFinal(state)) this.forget();
    this.show(state);
  }

  /** Whether the reader wants to be notified. */
  get isWanted(): boolean {
    return this.key !== null && sessionStorage.getItem(this.key) !== null && isAllowed();
  }

  /** Notifies once the build has ended. */
  update(state: DOMStringMap): void {
    if (isFinal(state) && this.isWanted) {
      this.forget();
      notify(state["title"] ?? "", state["said"] ?? "", this.button?.dataset["notify"] ?? "");
    }
    this.show(state);
  }

  private get key(): string | null {
    const build = this.button?.dataset["notify"];
    return build ? KEY + build : null;
  }

  private forget(): void {
    if (this.key) sessionStorage.removeItem(this.key);
  }

  private async toggle(): Promise<void> {
    if (this.isWanted) this.forget();
    else if ((await Notification.requestPermission()) === "granted" && this.key) sessionStorage.setItem(this.key, "1");
    else if (this.note) this.note.textContent = "The browser's settings block notifications of this site.";
    this.press();
  }

  private show(state: DOMStringMap): void {
    if (!this.button) return;
    this.button.hidden = isFinal(state) || !("Notification" in window);
    if (this.button.hidden && this.note) this.note.textContent = "";
    this.press();
  }

  private press(): void {
    if (!this.button) return;
    this.button.dataset["ready"] = "";
    this.button.setAttribute("aria-pressed", String(this.isWanted));
    if (this.isWanted && this.note) this.note.textContent = "";
  }
}

function isFinal(state: DOMStringMap): boolean {
  return FINAL.has(state["state"] ?? "");
}

function isAllowed(): boolean {
  return "Notification" in window && Notification.permission === "granted";
}

function notify(title: string, body: string, build: string): void {
  // One for each build, also if it is open in several tabs.
  const shown = new Notification(title, { body, tag: KEY + build });
  shown.addEventListener("click", () => {
    window.focus();
    shown.close();
  });
}

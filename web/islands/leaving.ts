/** Browsers keep pages whole for Back. Those of who signed out since are loaded anew: they show what was typed. */

const SIGNED_OUT = "pt2hub-signed-out";

/** Notes when the reader signs out, and loads a page anew that comes back from before that. */
export function forgetAfterSigningOut(): void {
  document.querySelector("form.who")?.addEventListener("submit", () => note(Date.now()));
  addEventListener("pageshow", (event) => {
    if (event.persisted && wasSignedIn() && noted() > performance.timeOrigin) {
      document.body.hidden = true;
      location.reload();
    }
  });
}

function wasSignedIn(): boolean {
  return document.querySelector('meta[name="csrf"]') !== null;
}

function note(time: number): void {
  try {
    localStorage.setItem(SIGNED_OUT, String(time));
  } catch {
    // Without storage the server's own word, Clear-Site-Data, is all there is.
  }
}

function noted(): number {
  try {
    return Number(localStorage.getItem(SIGNED_OUT) ?? 0);
  } catch {
    return 0;
  }
}

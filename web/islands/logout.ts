/** Reloads pages restored by Back after a logout, because browsers keep what was typed in them. */

const STORAGE_KEY = "pt2hub-signed-out";

/** Records logouts, and reloads a restored page that is older than the last one. */
export function reloadAfterLogout(): void {
  document.querySelector("form[data-sign-out]")?.addEventListener("submit", () => recordLogout(Date.now()));
  addEventListener("pageshow", (event) => {
    if (event.persisted && wasSignedIn() && lastLogout() > performance.timeOrigin) {
      document.body.hidden = true;
      location.reload();
    }
  });
}

function wasSignedIn(): boolean {
  return document.querySelector("form[data-sign-out]") !== null;
}

function recordLogout(time: number): void {
  try {
    localStorage.setItem(STORAGE_KEY, String(time));
  } catch {
    // Without storage, the Clear-Site-Data header of the server has to suffice.
  }
}

function lastLogout(): number {
  try {
    return Number(localStorage.getItem(STORAGE_KEY) ?? 0);
  } catch {
    return 0;
  }
}

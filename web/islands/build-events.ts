/** Events of a build, from a stream or, if the server refuses one, by polling. */

const POLL_MS = 2000;
const HIDDEN_POLL_MS = 15_000;

/** Callbacks, which may be called at any time, even without a change. */
export interface BuildListener {
  /** The build may have changed. */
  build(): void;
  /** Its log may have grown. */
  lines(): void;
}

/**
 * Follows a build until the returned function is called. Hidden pages hold no stream open; they poll slowly if
 * `isWanted`.
 */
export function follow(address: string, listener: BuildListener, isWanted: () => boolean): () => void {
  const start = (): (() => void) => (document.hidden ? poll(listener, isWanted) : open(address, listener));
  let close = start();
  const onVisibility = (): void => {
    close();
    close = start();
  };
  document.addEventListener("visibilitychange", onVisibility);
  return () => {
    document.removeEventListener("visibilitychange", onVisibility);
    close();
  };
}

function poll(listener: BuildListener, isWanted: () => boolean): () => void {
  const clock = setInterval(() => {
    if (isWanted()) listener.build();
  }, HIDDEN_POLL_MS);
  return () => clearInterval(clock);
}

function open(address: string, listener: BuildListener): () => void {
  const source = new EventSource(address);
  let clock: ReturnType<typeof setInterval> | undefined;
  const both = (): void => {
    listener.build();
    listener.lines();
  };
  source.addEventListener("build", () => listener.build());
  source.addEventListener("lines", () => listener.lines());
  source.addEventListener("end", () => {
    source.close();
    both();
  });
  source.addEventListener("error", () => {
    // A source that reconnects continues by itself.
    if (source.readyState === EventSource.CLOSED) clock ??= setInterval(both, POLL_MS);
  });
  return () => {
    source.close();
    clearInterval(clock);
  };
}

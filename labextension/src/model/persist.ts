/** Repeats a message for some seconds: a kernel's new subshell may lose one (ipykernel 7.4). */
const AGAIN_AFTER_MS = [1500, 4000, 8000];

/** Call `send` now and again until `isDone`; the message must be idempotent. */
export function persist(send: () => void, isDone: () => boolean): void {
  send();
  AGAIN_AFTER_MS.forEach(delay =>
    setTimeout(() => {
      if (!isDone()) {
        send();
      }
    }, delay)
  );
}
